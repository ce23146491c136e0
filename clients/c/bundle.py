#!/usr/bin/env python3
"""Makes clients/c/spillway.h: the headers of shm/ that an application needs, as one file.

    clients/c/bundle.py            writes the file
    clients/c/bundle.py --check    exit 1 when the file is not what shm/ makes

What is left out: parts between "SIDECAR ONLY" marks, the switch points of tests/model, and the comments of the inner headers, which are read in shm/.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PUBLIC = ["spw_status.h", "spw_quote.h", "spw_client.h"]
ORDER = ["spw_status.h", "spw_quote.h", "spw_atomic.h", "spw_layout.h", "spw_latch.h", "spw_gcra.h", "spw_map.h",
         "spw_slot.h", "spw_bucket.h", "spw_breaker.h", "spw_gate.h", "spw_permit.h", "spw_admission.h", "spw_ref.h", "spw_text.h",
         "spw_rates.h", "spw_fallback.h", "spw_cell.h", "spw_flag.h", "spw_client.h"]
SIDECAR_ONLY = re.compile(r"/\* SIDECAR ONLY.*?/\* END SIDECAR ONLY \*/\n", re.S)
STEPS = re.compile(r"/\* Nothing, except in tests/model(?s:.*?)#endif\n\n|^ *SPW_STEP_(?:SEE|SET)\(.*\);\n", re.M)
EXTERN_C = re.compile(r"#ifdef __cplusplus\n(extern \"C\" \{|\})\n#endif\n")
COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|/\*.*?\*/', re.S)

# The inner headers are read in shm/; here they only have to be short.
COMPACT = ("{BasedOnStyle: LLVM, ColumnLimit: 150, IndentWidth: 2, AllowShortFunctionsOnASingleLine: All, "
           "AllowShortIfStatementsOnASingleLine: WithoutElse, AllowShortLoopsOnASingleLine: true, "
           "AllowShortBlocksOnASingleLine: Always, AllowShortCaseLabelsOnASingleLine: true, SortIncludes: false, "
           "AllowShortEnumsOnASingleLine: true, PenaltyReturnTypeOnItsOwnLine: 10000, MaxEmptyLinesToKeep: 1, "
           "ReflowComments: false, SpaceAfterCStyleCast: false}")

HEAD = """/* spillway.h: ask a Spillway sidecar, from C or C++, without a library: one file, libc only.
 *
 * GENERATED from shm/ by clients/c/bundle.py: do not edit. Copyright the Spillway authors, Apache-2.0.
 * The documentation of every call stands at its definition, from "spw_client.h" down to the end of this file.
 * Include it before any system header (or define _GNU_SOURCE); link with -pthread.
 */
#ifndef SPILLWAY_H
#define SPILLWAY_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

"""


def strip_comments(text):
    def keep(match):
        return match.group(0) if match.group(0)[0] in "\"'" else ""
    text = COMMENT.sub(keep, text)
    lines = [line.rstrip() for line in text.split("\n")]
    return "\n".join(line for line in lines if line and line != "\\")


def compact(text):
    return subprocess.run(["clang-format", "--style=" + COMPACT], input=text, capture_output=True, text=True,
                          check=True).stdout


def body(name, includes):
    text = (ROOT / "shm" / name).read_text()
    text = STEPS.sub("", SIDECAR_ONLY.sub("", text))
    guard = name.upper().replace(".", "_")
    text = re.sub(rf"#ifndef {guard}\n#define {guard}\n", "", text)
    text = text.rstrip()
    assert text.endswith("#endif"), name
    text = text[:-len("#endif")]
    text = EXTERN_C.sub("", text)
    kept = []
    for line in text.split("\n"):
        match = re.match(r"#include ([<\"])(.*?)[>\"]", line)
        if not match:
            kept.append(line)
        elif match.group(1) == "<":
            includes.add(match.group(2))
    text = "\n".join(kept)
    return compact(text if name in PUBLIC else strip_comments(text)).strip()


def bundle():
    includes = set()
    parts = [body(name, includes) for name in ORDER]
    out = HEAD + "".join(f"#include <{name}>\n" for name in sorted(includes))
    out += "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n"
    for name, part in zip(ORDER, parts):
        out += f"\n/* ---- {name} ---- */\n\n{part}\n"
    return out + "\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n"


def main():
    target = ROOT / "clients" / "c" / "spillway.h"
    made = bundle()
    if "--check" in sys.argv[1:]:
        if target.read_text() != made:
            print("clients/c/spillway.h is not what shm/ makes: run clients/c/bundle.py", file=sys.stderr)
            return 1
        return 0
    target.write_text(made)
    print(f"{target.relative_to(ROOT)}: {made.count(chr(10))} lines")
    return 0


if __name__ == "__main__":
    sys.exit(main())
