# SPDX-License-Identifier: Apache-2.0
"""200 steps of a small MoE model of transformers in fp8 and in bf16, on a GPU: the losses agree within 0.5 %. No
daemon: kernels are the analytic default's, compiled here.

    GEMMD_LIBRARY=build/client/libgemmd.so python3 -m pytest -q -s -p no:cacheprovider tests/gpu/test_fp8_loss.py

Skipped without PyTorch, transformers 5, a GPU or a libgemmd.so.
"""
import warnings

import pytest
from on_gpu import gt, torch

transformers = pytest.importorskip("transformers")
if int(transformers.__version__.split(".")[0]) < 5:
    pytest.skip(f"transformers {transformers.__version__} has no experts interface", allow_module_level=True)

import gemmd.transformers  # noqa: E402, F401
from gemmd.torch.fp8 import seen  # noqa: E402

DEVICE, STEPS, LAST = "cuda", 200, 40
WORDS, BATCH, LENGTH = 256, 8, 128
SIZES = dict(vocab_size=WORDS, hidden_size=256, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=4, max_position_embeddings=LENGTH, num_local_experts=8, num_experts_per_tok=2,
             bos_token_id=1, eos_token_id=2, pad_token_id=0)


@pytest.fixture(autouse=True)
def offline(tmp_path):
    warnings.simplefilter("ignore")
    gt.configure(socket=str(tmp_path / "nobody.sock"), wait="cached", retry_s=None, enabled=True)


def text(generator, follows):
    """Sequences in which each word is followed by one of four words: half of them by the first."""
    rows = [torch.randint(WORDS, (BATCH,), generator=generator)]
    for _ in range(LENGTH - 1):
        choice = (torch.randint(8, (BATCH,), generator=generator) - 4).clamp(min=0)
        rows.append(follows[rows[-1], choice])
    return torch.stack(rows, 1).to(DEVICE)


def losses(implementation, seed):
    """The losses of all steps: fp32 weights under autocast, AdamW."""
    torch.manual_seed(seed)
    model = transformers.AutoModelForCausalLM.from_config(
        transformers.MixtralConfig(**SIZES), experts_implementation=implementation, dtype=torch.float32).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(seed)
    follows, out = torch.randint(WORDS, (WORDS, 4), generator=generator), []
    for _ in range(STEPS):
        ids = text(generator, follows)
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = model(ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        out.append(loss.detach())
    return torch.stack(out).tolist()


@pytest.mark.parametrize("seed", [1, 2])
def test_the_losses_agree(seed):
    seen.forget()
    bf16, fp8 = losses("gemmd", seed), losses("gemmd_fp8", seed)
    a, b = (sum(of[-LAST:]) / LAST for of in (bf16, fp8))
    print(f"\nseed {seed}: loss {bf16[0]:.3f} at first; mean of the last {LAST} of {STEPS} steps: bf16 {a:.4f}, fp8 {b:.4f}, "
          f"{100 * (b / a - 1):+.2f} %")
    assert {(p.mode, p.place) for p, _ in seen.products()} == {(mode, "fp8") for mode in ("forward", "dX", "dW")}
    assert a < 0.8 * bf16[0] and abs(b / a - 1) < 0.005
