/* Lists what the reader sees of a GGUF file, one line each, for comparison with another reader:
 *   key NAME TYPE COUNT CRC       CRC32 of the value's bytes as they stand in the file
 *   tensor NAME TYPE_ID OFFSET BYTES DIMS...     offset of the data in its file */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>

#include "file/gguf_file.h"

/* CRC-32 of IEEE 802.3, as zlib computes it. */
static uint32_t crc32_of(const unsigned char *p, const unsigned char *end)
{
    uint32_t table[256], crc = UINT32_MAX;
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int bit = 0; bit < 8; bit++)
            table[i] = table[i] >> 1 ^ (table[i] & 1 ? UINT32_C(0xedb88320) : 0);
    }
    for (; p < end; p++)
        crc = crc >> 8 ^ table[(crc ^ *p) & 0xff];
    return ~crc;
}

int main(int argc, char **argv)
{
    rkv_gguf *g = NULL;
    rkv_error e = {0};
    if (argc != 2) {
        fprintf(stderr, "usage: gguf_dump FILE\n");
        return 2;
    }
    if (rkv_gguf_open(&g, argv[1], &e)) {
        fprintf(stderr, "gguf_dump: %s\n", e.text);
        return 3;
    }
    for (int i = 0; i < g->keys.n; i++) {
        const rkv_gguf_key *k = &g->keys.key[i];
        printf("key %.*s %s%s %zu %08" PRIx32 "\n", (int)k->n_name, k->name,
               k->is_array ? "array:" : "", rkv_gguf_type_table[k->type].name, k->count,
               crc32_of(k->data, k->end));
    }
    for (int i = 0; i < g->n_tensor; i++) {
        const rkv_gguf_entry *t = &g->tensor[i];
        const unsigned char *data = t->view.data;
        printf("tensor %s %" PRIu32 " %td %zu", t->name, t->type_id, data - g->map[t->shard].data,
               t->view.bytes);
        for (int d = 0; d < t->view.n_dim; d++)
            printf(" %" PRId64, t->view.dim[d]);
        putchar('\n');
    }
    rkv_gguf_close(g);
    return 0;
}
