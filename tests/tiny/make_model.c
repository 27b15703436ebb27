/* Command line of the made models. */
#include "config.h"
#include "tiny/model.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct option {
    const char *name;
    size_t offset;
    int is_text;
} option;

#define INT(name, member) {"--" name, offsetof(tiny_options, member), 0}
#define TEXT(name, member) {"--" name, offsetof(tiny_options, member), 1}
static const option options[] = {
    TEXT("family", family),     INT("layers", n_layer), INT("heads", n_head),
    INT("kv-heads", n_kv_head), INT("d-head", d_head),  INT("d-model", d_model),
    INT("d-ff", d_ff),          INT("vocab", n_vocab),  INT("ctx", n_ctx),
    TEXT("type", type),         TEXT("rope", rope),     TEXT("tokenizer", tokenizer),
    INT("tied", tied),          INT("window", window),  INT("pattern", pattern),
    INT("shards", n_shard),     TEXT("extra", extra),
};

static int usage(const char *wrong)
{
    fprintf(stderr, "make_model: %s\nusage: make_model --out FILE [--seed S]", wrong);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        fprintf(stderr, " [%s %s]", options[i].name, options[i].is_text ? "NAME" : "N");
    fputc('\n', stderr);
    return 2;
}

static int set_number(const char *text, int64_t *v)
{
    char *end;
    errno = 0;
    *v = strtoll(text, &end, 10);
    return !errno && end != text && !*end;
}

static int set_option(tiny_options *o, const char *name, const char *value)
{
    int64_t v;
    if (!strcmp(name, "--seed")) {
        const int ok = set_number(value, &v) && v >= 0;
        o->seed = ok ? (uint64_t)v : 0;
        return ok;
    }
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        if (strcmp(name, options[i].name))
            continue;
        void *member = (char *)o + options[i].offset;
        if (options[i].is_text) {
            memcpy(member, &value, sizeof value);
            return 1;
        }
        if (!set_number(value, &v) || v < INT32_MIN || v > INT32_MAX)
            return 0;
        *(int *)member = (int)v;
        return 1;
    }
    return 0;
}

int main(int argc, char **argv)
{
    tiny_options o = tiny_defaults();
    const char *out = NULL;
    for (int i = 1; i < argc; i += 2) {
        if (i + 1 == argc)
            return usage("an option without a value");
        if (!strcmp(argv[i], "--out"))
            out = argv[i + 1];
        else if (!set_option(&o, argv[i], argv[i + 1]))
            return usage(argv[i]);
    }
    if (!out)
        return usage("--out is missing");
    rkv_error e = {0};
    if (!tiny_write(&o, out, &e))
        return 0;
    fprintf(stderr, "make_model: %s\n", e.text);
    return 1;
}
