#!/usr/bin/env python3
"""Makes clients/c/spillway.h: the headers of shm/ that an application needs, as one file.

    clients/c/bundle.py            writes the file
    clients/c/bundle.py --check    exit 1 when the file is not what shm/ makes

What is left out: parts between "SIDECAR ONLY" marks, the switch points of tests/model, functions that no public one
needs, and the comments of the inner headers. Those are read in shm/; here they are packed, several statements a line.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PUBLIC = ["spw_status.h", "spw_quote.h", "spw_client.h"]
ORDER = ["spw_status.h", "spw_quote.h", "spw_atomic.h", "spw_layout.h", "spw_latch.h", "spw_gcra.h", "spw_map.h",
         "spw_slot.h", "spw_bucket.h", "spw_breaker.h", "spw_gate.h", "spw_permit.h", "spw_admission.h", "spw_ref.h", "spw_text.h",
         "spw_rates.h", "spw_fallback.h", "spw_cell.h", "spw_flag.h", "spw_exchange.h", "spw_client.h"]
SIDECAR_ONLY = re.compile(r"/\* SIDECAR ONLY.*?/\* END SIDECAR ONLY \*/\n", re.S)
STEPS = re.compile(r"/\* Nothing, except in tests/model(?s:.*?)#endif\n\n|^ *SPW_STEP_(?:SEE|SET)\(.*\);\n", re.M)
EXTERN_C = re.compile(r"#ifdef __cplusplus\n(extern \"C\" \{|\})\n#endif\n")
# Of the inner headers, what applications may call: the rest stays only where a public function needs it.
EXTRA = {"spw_ref_init", "spw_now_ns", "spw_admission_tokens_milli", "spw_gate_name", "spw_refusal_type"}
WIDTH = 160
DEFINITION = re.compile(r"^(?:static inline|static SPW_(?:COLD|ASIDE)|SPW_HOT)\b[^;{=]*?\b(spw_\w+)\((?:[^;{]|\n)*?\) \{", re.M)
CONTROL = re.compile(r"(if|else|for|while|do|switch|case|default|#|\}|return\b.*\{)")
TAIL = re.compile(r" +(if|for) \(.*\) [^;{]*;$")
HAS_TAIL = re.compile(r"; (if|for) \(")
COMMENT = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|/\*.*?\*/', re.S)

# The inner headers are read in shm/; here they only have to be short.
COMPACT = ("{BasedOnStyle: LLVM, ColumnLimit: 160, IndentWidth: 2, AllowShortFunctionsOnASingleLine: All, "
           "AllowShortIfStatementsOnASingleLine: AllIfsAndElse, AllowShortLoopsOnASingleLine: true, "
           "AllowShortBlocksOnASingleLine: Always, AllowShortCaseLabelsOnASingleLine: true, SortIncludes: false, "
           "AllowShortEnumsOnASingleLine: true, PenaltyReturnTypeOnItsOwnLine: 10000, MaxEmptyLinesToKeep: 1, "
           "AlignAfterOpenBracket: DontAlign, AlignOperands: DontAlign, ContinuationIndentWidth: 4, BreakBeforeBinaryOperators: None, "
           "ReflowComments: false, SpaceAfterCStyleCast: false}")

HEAD = """/* spillway.h: ask a Spillway sidecar, from C or C++, without a library: one file, libc only.
 *
 * GENERATED from shm/ by clients/c/bundle.py: do not edit. Copyright the Spillway authors, Apache-2.0.
 * The documentation of every call stands at its definition, from "spw_client.h" down to the end of this file. What comes
 * before it is packed; the same code with its comments is in shm/ of the Spillway repository, file by file.
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


def functions(text):
    """(name, start, end) of each function defined at the left edge."""
    found = []
    for match in DEFINITION.finditer(text):
        line_end = text.index("\n", match.end() - 1)
        one_line = text[match.start():line_end].count("{") == text[match.start():line_end].count("}")
        end = line_end if one_line else text.index("\n}", match.end()) + 2
        found.append((match.group(1), match.start(), end + 1))
    return found


def drop_unused(parts):
    """The parts without functions that cannot be reached from a public one. Macros and data count as used."""
    defined = {name: (part, start, end) for part, text in parts.items() for name, start, end in functions(text)}
    outside = []  # what is no function's body: macros, tables, initialisers
    for part, text in parts.items():
        at = 0
        for _, start, end in functions(text):
            outside.append(text[at:start])
            at = end
        outside.append(text[at:])
    wanted = [n for n in re.findall(r"\bspw_\w+", "".join(outside)) if n in defined]
    wanted += [n for n, (part, _, _) in defined.items() if n in EXTRA or (part in PUBLIC and not n.startswith("spw__"))]
    used = set()
    while wanted:
        name = wanted.pop()
        if name not in used:
            used.add(name)
            part, start, end = defined[name]
            wanted += [n for n in re.findall(r"\bspw_\w+", parts[part][start:end]) if n in defined and n not in used]
    out = {}
    for part, text in parts.items():
        for name, start, end in reversed(functions(text)):
            if name not in used:
                text = text[:start] + text[end:]
        out[part] = text
    return out


def strip_bodies(text):
    """A public header without the comments inside its functions."""
    for _, start, end in reversed(functions(text)):
        text = text[:start] + strip_comments(text[start:end]) + "\n" + text[end:]
    return text


def drop_unused_constants(text):
    """Numbers of the inner headers that nothing here uses."""
    while True:
        kept = [line for line in text.split("\n")
                if not (match := re.match(r"#define (SPW_\w+) +[^\\]*$", line)) or
                len(re.findall(rf"\b{match.group(1)}\b", text)) > 1 or "/*" in line]
        if len(kept) == len(text.split("\n")):
            return text
        text = "\n".join(kept)


def indent_of(line):
    return len(line) - len(line.lstrip(" "))


def is_simple(line):
    """A whole statement or declaration, which others may stand beside."""
    text = line.strip()
    return text.endswith(";") and not CONTROL.match(text) and "{" not in text and not HAS_TAIL.search(text)


def starts_whole(before):
    """Does a line after this one begin a statement?"""
    text = before.strip()
    return not text or text[-1] in ";{}:" or text.startswith("#") or text.endswith("*/")


def is_entry(line):
    """An entry of an enumeration or table, or a record accessor."""
    return bool(re.match(r" +[^#/*]*,$", line) and line.count("(") == line.count(")") and
                line.count("{") == line.count("}")) or bool(re.match(r"SPW__ACCESSOR\(.*\)$", line))


def pack_entries(lines):
    out = []
    for line in lines:
        if (out and is_entry(line) and is_entry(out[-1]) and indent_of(line) == indent_of(out[-1]) and
                (len(out) < 2 or out[-2].rstrip().endswith(("{", ",", ")")) and not out[-2].endswith("\\")) and
                len(out[-1]) + 1 + len(line.strip()) <= WIDTH):
            out[-1] += " " + line.strip()
        else:
            out.append(line)
    return out


def pack_statements(lines):
    out = []
    for line, after in zip(lines, lines[1:] + [""]):
        last = out[-1] if out else ""
        fits = is_simple(line) or (TAIL.match(line) and not after.lstrip().startswith("else"))
        if (out and fits and is_simple(last) and indent_of(line) == indent_of(last) and
                (len(out) < 2 or starts_whole(out[-2])) and len(last) + 1 + len(line.strip()) <= WIDTH and
                not last.lstrip().startswith("return")):
            out[-1] = last + " " + line.strip()
        else:
            out.append(line)
    return out


def pack_blocks(lines):
    """A block of one line and its braces become one line; so does a switch case's line and its return."""
    out = []
    for line in lines:
        body = out[-1] if out else ""
        if (line == "};" and len(out) >= 2 and re.match(r"(struct|enum) [\w ]+\{$", out[-2]) and
                "/*" not in body and (is_simple(body) or re.match(r" [^#/\\]*$", body)) and
                len(out[-2]) + len(body.strip()) + 4 <= WIDTH):
            out[-2:] = [out[-2] + " " + body.strip() + " };"]
        elif (re.match(r" *\} else", line) and len(out) >= 2 and out[-2].endswith(" {") and is_simple(body) and
                indent_of(out[-2]) == indent_of(line) and indent_of(body) == indent_of(line) + 2 and
                len(out[-2]) + len(body.strip()) + 3 <= WIDTH and (len(out) < 3 or starts_whole(out[-3]))):
            out[-2:] = [out[-2] + " " + body.strip() + " }", line.replace("} else", "else", 1)]
        elif (line.strip() == "}" and len(out) >= 2 and out[-2].endswith(" {") and
                (is_simple(body) or TAIL.match(body) or (body.endswith(";") and HAS_TAIL.search(body) and
                                                         not CONTROL.match(body.strip()))) and
                indent_of(out[-2]) == indent_of(line) and indent_of(out[-1]) == indent_of(line) + 2 and
                len(out[-2]) + len(out[-1].strip()) + 3 <= WIDTH and not out[-2].lstrip().startswith("}") and
                (len(out) < 3 or starts_whole(out[-3]))):
            block = out[-2] + " " + out[-1].strip() + " }"
            out[-2:] = [block]
        else:
            out.append(line)
    return out


def hug(text):
    """Of what is packed anyway: a block's last statement and the braces that end with it share a line."""
    out = []
    for line in text.split("\n"):
        last = out[-1] if out else ""
        whole = len(out) < 2 or starts_whole(out[-2]) or out[-2].rstrip().endswith(")")
        if (re.match(r" *\}$", line) and len(last) + 2 <= WIDTH and
                (re.match(r" *\}[ }]*$", last) or (re.match(r" +[^#{]*;$", last) and whole))):
            out[-1] = last + " }"
        else:
            out.append(line)
    return "\n".join(out)


def pack(text):
    lines = text.split("\n")
    while True:
        packed = pack_blocks(pack_statements(pack_entries(lines)))
        if packed == lines:
            return "\n".join(lines)
        lines = packed


def bundle():
    includes = set()
    parts = drop_unused({name: body(name, includes) for name in ORDER})
    out = HEAD + "".join(f"#include <{name}>\n" for name in sorted(includes))
    out += "\n#ifdef __cplusplus\nextern \"C\" {\n#endif\n"
    for name in ORDER:
        part = strip_bodies(parts[name]) if name in PUBLIC else parts[name]
        out += f"\n/* ---- {name} ---- */\n{pack(part) if name in PUBLIC else hug(pack(part))}\n"
    return drop_unused_constants(out) + "\n#ifdef __cplusplus\n}\n#endif\n\n#endif\n"


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
