#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""late.py [--keys 10000]: how long a new host takes to know all keys of its device class."""
import argparse
import json
import sys
import time

import hosts
import server as servers
from hosts import PlayedHost, until
from server import Host, Server


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--keys", type=int, default=10000)
    args = parser.parse_args()
    if servers.missing() or not hosts.FLEET.exists():
        print("SKIP:", servers.missing() or "gemmd-fleet is not built")
        return 77
    server, late = Server(), PlayedHost("late")
    try:
        teacher = Host(server, "teacher", stamp=hosts.STAMP, cls=hosts.CLASS)
        first = PlayedHost("first").link(server.conninfo())
        first.do("tune", 1, 5.0)
        until("the row is published", lambda: first.numbers(1))
        good = json.loads(server.psql('SELECT "row" FROM fleet.best'))
        first.close()
        keys = [late.key(m) for m in range(10, 10 + args.keys)]
        for i in range(0, args.keys, 256):
            part = range(i, min(i + 256, args.keys))
            teacher.publish([keys[j] for j in part],
                            rows=[{**good, "key": keys[j], "problem": {**good["problem"], "M": 10 + j}} for j in part])
        begin = time.monotonic()
        late.link(server.conninfo("h2"))
        until("all rows are there", lambda: late.rows("SELECT count(*) FROM best") == [(args.keys + 1,)], 120)
        print(f"{args.keys} keys after {time.monotonic() - begin:.2f} s, with the start of gemmd-fleet")
        return 0
    finally:
        late.close()
        server.close()


if __name__ == "__main__":
    sys.exit(main())
