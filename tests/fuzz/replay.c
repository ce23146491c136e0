/* replay.c: main() of a fuzz program where there is no libFuzzer: the kept inputs, and some of a fixed seed, once each.
 *
 * Owns: nothing. Called by: ctest, as "fuzz_NAME MAX_BYTES CORPUS_DIR". Thread: one. The made-up inputs are prefixes of
 * kept ones with bytes changed, and plain noise: not a search, but every line of the program under test's entry runs in
 * every preset.
 */
#include <dirent.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

#define MADE_UP_COUNT 200

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Replaces up to 16 bytes of the input, cuts it somewhere, and runs it. */
static void run_changed(uint8_t *data, size_t bytes, uint64_t *state)
{
    size_t kept = bytes ? (size_t)(next(state) % (bytes + 1)) : 0;
    for (uint64_t n = next(state) % 17; n > 0 && kept > 0; n--)
        data[next(state) % kept] = (uint8_t)next(state);
    LLVMFuzzerTestOneInput(data, kept);
}

static size_t read_file(const char *path, uint8_t *data, size_t room)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return 0;
    size_t n = fread(data, 1, room, file);
    fclose(file);
    return n;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    size_t room = strtoul(argv[1], NULL, 10), files = 0;
    uint8_t *data = calloc(1, room + 1);
    uint64_t state = 0x9E3779B97F4A7C15;
    if (!data)
        return 1;
    DIR *dir = opendir(argv[2]);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char path[4096];
        if (entry->d_name[0] == '.' ||
            (size_t)snprintf(path, sizeof path, "%s/%s", argv[2], entry->d_name) >= sizeof path)
            continue;
        size_t n = read_file(path, data, room);
        LLVMFuzzerTestOneInput(data, n);
        for (int i = 0; i < 20; i++)
            run_changed(data, read_file(path, data, room), &state);
        files++;
    }
    if (dir)
        closedir(dir);
    for (int i = 0; i < MADE_UP_COUNT; i++) {
        for (size_t at = 0; at < room; at++)
            data[at] = (uint8_t)next(&state);
        run_changed(data, room, &state);
    }
    printf("%zu kept inputs, %d made up\n", files, MADE_UP_COUNT);
    free(data);
    return 0;
}
