# SPDX-License-Identifier: Apache-2.0
"""Device sources are embedded without comments, so a comment that changes makes no measured row stale."""
import pathlib
import re
import subprocess

EMBED = pathlib.Path(__file__).resolve().parents[3] / "scripts" / "embed"


def embedded(tmp_path, *texts, macro=None):
    inputs = []
    for i, text in enumerate(texts):
        inputs.append(tmp_path / f"{i}.cu")
        inputs[-1].write_text(text)
    subprocess.run([EMBED, *([macro] if macro else []), "source", *inputs, tmp_path / "out.c"], check=True)
    octets = re.findall(r"0x([0-9a-f]{2})", (tmp_path / "out.c").read_text().split("{", 1)[1])
    assert octets[-1] == "00"
    return bytes(int(o, 16) for o in octets[:-1]).decode()


def test_a_comment_changes_nothing_whatever_its_lines(tmp_path):
    with_comments = "/* An essay\n * of two lines. */\nint a; // one's name\nint b; /* two */\n"
    assert embedded(tmp_path, with_comments) == "int a;\nint b;\n"
    assert embedded(tmp_path, with_comments.replace("two", "two\n\n * or three")) == embedded(tmp_path, with_comments)


def test_code_that_changes_is_another_text(tmp_path):
    assert embedded(tmp_path, "int a;\n") != embedded(tmp_path, "int b;\n")


def test_what_looks_like_a_comment_in_a_string_stays(tmp_path):
    text = 'asm("ld /* x */ // y"); #error "dW\'s // tiles"\nchar c = \'"\'; /* gone */ int d;\n'
    assert embedded(tmp_path, text) == text.replace(" /* gone */ ", "   ").replace("   int", "   int")


def test_inputs_follow_each_other(tmp_path):
    assert embedded(tmp_path, "int a;\n", "int b;\n") == "int a;\nint b;\n"


def test_a_macro_makes_two_sources_of_the_same_files(tmp_path):
    text = "int a;\n#if FP8\nint b;\n#if X\nint c;\n#endif\n#else\nint d;\n#endif\n#if Y\nint e;\n#else\nint f;\n#endif\n"
    rest = "#if Y\nint e;\n#else\nint f;\n#endif\n"
    assert embedded(tmp_path, text, macro="FP8=0") == "int a;\nint d;\n" + rest
    assert embedded(tmp_path, text, macro="FP8=1") == "int a;\nint b;\n#if X\nint c;\n#endif\n" + rest
    assert embedded(tmp_path, text) == text
    assert embedded(tmp_path, text.replace("if FP8", "if !FP8"), macro="FP8=1") == "int a;\nint d;\n" + rest
