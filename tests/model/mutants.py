#!/usr/bin/env python3
"""Shows that the models see: each of them is built with one line of shm/ broken, and must find a fault.

    mutants.py COMPILER [NAME...]       build and run all mutants, or these

A mutant is a model, a file, a piece of its text and what takes its place; the text has to stand there exactly once.
Compiled from a copy of the file alone: the other headers are the real ones.
"""
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
FLAGS = ["-std=c11", "-D_GNU_SOURCE", '-DSPW_VERSION=""', "-O1", "-w", "-fno-strict-aliasing", "-U_FORTIFY_SOURCE"]

# name: (model program, file, text, its replacement)
MUTANTS = {
    "bucket-take-by-store": ("bucket", "shm/spw_bucket.h",
        "if (!take || spw_cas(&words->level, &word, spw_bucket_word(spw_bucket_slot(word), next)))",
        "if (!take || (spw_store_rel(&words->level, spw_bucket_word(spw_bucket_slot(word), next)), true))"),
    "bucket-back-by-store": ("bucket", "shm/spw_bucket.h",
        "bool done = spw_cas(&words->level, &word, spw_bucket_word(spw_bucket_slot(word), held - (to - from)));",
        "spw_store_rel(&words->level, spw_bucket_word(spw_bucket_slot(word), held - (to - from))); bool done = true;"),
    "bucket-heals-to-full": ("bucket", "shm/spw_bucket.h",
        "if (spw_cas(&words->level, &bad, spw_bucket_word(slot, spw_gcra_earned(&g, now_ns))))",
        "if (spw_cas(&words->level, &bad, spw_bucket_word(slot, spw_gcra_earned(&g, now_ns) - g.burst_units)))"),
    "config-level-by-store": ("config", "shm/spw_bucket.h",
        "if (spw_cas(&words->level, &word, spw_bucket_word(slot, level)))\n            return true;",
        "{ spw_store_rel(&words->level, spw_bucket_word(slot, level)); return true; }"),
    "config-fields-while-even": ("config", "shm/spw_bucket.h",
        "spw_store_rel(&target->version, version * 2 + 1);",
        "spw_store_rel(&target->version, version * 2);"),
    "config-no-second-look": ("config", "shm/spw_bucket.h",
        " || spw_load_rlx(&c->version) != version", ""),
    "config-scale-not-shifted": ("config", "shm/spw_gcra.h",
        "out->e0_units = out->burst_units + spw__gcra_salt(version);", "out->e0_units = out->burst_units;"),
    "latch-writes-the-valid-slot": ("latch", "shm/spw_latch.h",
        "spw_copy_rlx(slots + (next & 1) * stride_words,", "spw_copy_rlx(slots + (~next & 1) * stride_words,"),
    "latch-no-second-look": ("latch", "shm/spw_latch.h", "if (spw_load_rlx(seq) == before)", "if (before + 1)"),
    "latch-even-and-odd": ("latch", "shm/spw_latch.h",
        "uint64_t before = spw_load_acq(seq);",
        "uint64_t before = spw_load_acq(seq);\n        if (before & 1) { i--; continue; } /* waits for its writer */"),
    "breaker-opens-by-store": ("account", "shm/spw_breaker.h",
        "if (packed != word && !spw_cas(&words->breaker, &word, packed))",
        "if (packed != word && (spw_store_rel(&words->breaker, packed), false))"),
    "breaker-opens-from-a-later-word": ("account", "shm/spw_breaker.h",
        "if (packed != word && !spw_cas(&words->breaker, &word, packed))",
        "if (packed != word) word = spw_load_acq(&words->breaker);\n"
        "        if (packed != word && !spw_cas(&words->breaker, &word, packed))"),
    "breaker-any-epoch": ("account", "shm/spw_breaker.h", "b.epoch != epoch || ", ""),
    "breaker-everybody-probes": ("account", "shm/spw_breaker.h",
        "if (spw_cas(&words->breaker, &word, spw_breaker_pack(&next)) && sane) {",
        "if ((spw_cas(&words->breaker, &word, spw_breaker_pack(&next)), true) && sane) {"),
    "breaker-probe-for-ever": ("account", "shm/spw_breaker.h",
        "next.time_ms = now_ms + conf->probe_ms;", "next.time_ms = now_ms + 60000;"),
    "breaker-probe-back-of-any": ("account", "shm/spw_breaker.h",
        "if (b.state != SPW_BREAKER_HALF_OPEN || b.epoch != epoch)\n        return;\n    b.state = SPW_BREAKER_OPEN;\n    b.epoch++;",
        "b.state = SPW_BREAKER_OPEN;"),
    "gate-oldest-opens": ("account", "shm/spw_gate.h",
        "if (!mine && (told || !spw__gate_newer(observation, word >> 39 & SPW__OBS_MASK)))", "if (false)"),
    "gate-older-shortens": ("account", "shm/spw_gate.h",
        "bool newer = word == 0 ||", "bool newer = true || word == 0 ||"),
    "gate-everybody-asks": ("account", "shm/spw_gate.h",
        "if (spw_cas(&words->gate, &word,\n                    spw__gate_word(SPW_GATE_REFRESH,",
        "if (spw_exchange(&words->gate,\n                    spw__gate_word(SPW_GATE_REFRESH,"),
    "permit-release-whatever-is-there": ("account", "shm/spw_permit.h",
        "if (permit)\n        (void)spw_cas(permit, &word, 0);", "if (permit)\n        spw_store_rel(permit, 0);"),
    "permit-take-by-store": ("account", "shm/spw_permit.h",
        "if (spw_cas(permit, &held, mine)) {", "if ((spw_store_rel(permit, mine), true)) {"),
    "permit-sweep-any-generation": ("account", "shm/spw_permit.h",
        "(held >> 45) == ((uint64_t)(slot & 0x1FF) << 10 | (generation & 0x3FF)))", "held >> 55 == (slot & 0x1FF))"),
    "list-nothing-given-back": ("account", "shm/spw_admission.h",
        "if (ticket->charged >> i & 1)\n            spw_bucket_give_back(", "if (false)\n            spw_bucket_give_back("),
    "list-permit-kept": ("account", "shm/spw_admission.h",
        "if (ticket->has_permit && spw_permit_mine(v->map, ticket->permit_word))", "if (false)"),
    "ref-take-by-store": ("ref", "shm/spw_ref.h",
        "if (!take || spw_cas(&words->level, &word, next))",
        "if (!take || (spw_store_rel(&words->level, next), true))"),
    "ref-forced-forgotten": ("ref", "shm/spw_ref.h", "spw_load_rlx(&r->forced) != SPW_FORCED_NOT ||", ""),
    "ref-changes-unseen": ("ref", "shm/spw_ref.h",
        "return spw_load_acq(&pub->changes) == ref->bucket.changes;", "return pub != NULL;"),
    "ref-breaker-remembered": ("ref", "shm/spw_ref.h",
        "return !SPW_SELDOM(*breaker >> 62 | gate);", "return !SPW_SELDOM(gate);"),
    "ref-changes-not-told": ("ref", "shm/spw_map.h",
        "spw_store_rel(changes, spw_load_rlx(changes) + 1);", "(void)changes;"),
    "cells-head-first": ("cells", "shm/spw_cell.h",
        "for (uint32_t i = cells; i-- > 0;) {\n        uint64_t mine", "for (uint32_t i = 0; i < cells; i++) {\n        uint64_t mine"),
    "cells-claim-by-store": ("cells", "shm/spw_cell.h",
        "if (spw_cas(word, &seen, mine)) { /* SYNC", "if ((spw_store_rel(word, mine), true)) { /* SYNC"),
    "cells-freed-before-taken": ("cells", "shm/spw_cell.h",
        "taken = spw_cell_with(ready, SPW_CELL_TAKEN);", "taken = ready;"),
    "cells-free-forgets-the-chain": ("cells", "shm/spw_cell.h", "while (links-- > 0)", "while (links-- > 9)"),
    "cells-acknowledged-by-the-dead": ("cells", "shm/spw_cell.h",
        "if (!slot || !spw_cas(&slot->word, &live, live))", "if (!slot)"),
    "slots-live-before-the-lock": ("segment", "shm/spw_slot.h",
        "if (spw_slot_state(word) != SPW_SLOT_FREE || !spw__slot_lock(fd, map, index, F_WRLCK))\n            continue;",
        "if (spw_slot_state(word) != SPW_SLOT_FREE)\n            continue;"),
    "slots-sweep-the-living": ("segment", "sidecar/state/sweep.c",
        "!spw_slot_held(map->self.lock_fd, map, index)) {\n        uint64_t dead", "true) {\n        uint64_t dead"),
    "slots-freed-before-swept": ("segment", "sidecar/state/sweep.c",
        "    spw_permit_sweep(map, index, generation);\n    if (!spw_cell_sweep(map, index, generation))",
        "    if (!spw_cell_sweep(map, index, generation))"),
    "replace-copies-and-leaves": ("segment", "sidecar/state/limiters.c",
        "uint64_t word = spw_exchange(&from_words->level, SPW_MOVED);", "uint64_t word = spw_load_acq(&from_words->level);"),
    "replace-breaker-forgotten": ("segment", "sidecar/state/publish.c",
        "b.time_ms = shift_ms(old, &state->map, b.time_ms);", "b.state = SPW_BREAKER_CLOSED;"),
    "replace-moved-is-full": ("segment", "sidecar/state/limiters.c",
        "if (!now || word == SPW_MOVED ||",
        "if (now && word == SPW_MOVED) { spw_store_rel(&to_words->level, spw_bucket_word(slot, 0)); continue; }\n"
        "        if (!now ||"),
}

# What a model's program is made of besides its own file and the search.
MORE = {"segment": ["sidecar/state/sweep.c", "sidecar/state/publish.c", "sidecar/state/limiters.c",
                    "sidecar/state/plan.c"]}


def run(name, compiler, scratch):
    model, file, text, instead = MUTANTS[name]
    source = (ROOT / file).read_text()
    if source.count(text) != 1:
        return name, f"{file} does not hold the text that it breaks once, but {source.count(text)} times: mend the mutant"
    place = scratch / name
    (place / file).parent.mkdir(parents=True)
    (place / file).write_text(source.replace(text, instead))
    program = place / "model"
    sources = [ROOT / f"tests/model/model_{model}.c", ROOT / "tests/model/explore.c",
               *(place / source if source == file else ROOT / source for source in MORE.get(model, []))]
    done = subprocess.run([compiler, *FLAGS, f"-I{place}", f"-I{ROOT}", "-include", ROOT / "tests/model/step.h", *sources,
                           "-o", program], capture_output=True, text=True)
    if done.returncode:
        return name, "does not compile: " + done.stderr[:2000]
    environment = {key: value for key, value in os.environ.items() if key != "SPW_MODEL_DEEP"}
    ran = subprocess.run([program, "--expect-fault"], capture_output=True, text=True, env=environment)
    faults = [line for line in ran.stdout.splitlines() if line.endswith(", after")]
    if ran.returncode or not faults:
        return name, f"is not noticed (exit status {ran.returncode}):\n" + ran.stdout[-2000:]
    print(f"{name}: {faults[0].removesuffix(', after').replace(str(ROOT) + '/', '')}", flush=True)
    return name, None


def main():
    compiler, names = sys.argv[1], sys.argv[2:] or list(MUTANTS)
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        found = list(pool.map(lambda name: run(name, compiler, pathlib.Path(scratch)), names))
    missed = [(name, why) for name, why in found if why]
    for name, why in missed:
        print(f"MUTANT {name}: {why}")
    print(f"{len(found) - len(missed)} of {len(found)} mutants found")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
