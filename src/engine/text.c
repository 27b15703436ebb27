/* Text and machine: the parts of the public interface that only pass on. */
#include "config.h"
#include "engine/session.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "backend/blas.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/thread.h"
#include "cpu.h"
#include "text/chat.h"

#ifdef HAVE_NUMA
#include <numa.h>
#endif

void rkv_free(void *p)
{
    rkv_mem_free(p);
}

char *rkv_utf8_clean(const char *bytes, size_t n)
{
    rkv_text t = {0};
    rkv_text_add(&t, "", 0);
    for (size_t i = 0; i < n;) {
        const char *nul = memchr(bytes + i, 0, n - i);
        const size_t len = nul ? (size_t)(nul - (bytes + i)) : n - i;
        rkv_text_utf8(&t, bytes + i, len);
        if (nul)
            rkv_text_add(&t, "\xef\xbf\xbd", 3);
        i += len + (nul != NULL);
    }
    if (t.bad)
        rkv_text_free(&t);
    return t.data;
}

rkv_status rkv_tokenize(const rkv_model *m, const char *text, size_t n_byte, unsigned flags,
                        int32_t **ids, size_t *n_id, rkv_error *e)
{
    const size_t most = (size_t)1 << 30;
    if (n_byte > most)
        return rkv_fail(e, RKV_E_ARG, "text of %zu bytes, at most %zu can be tokenized at once",
                        n_byte, most);
    return rkv_tok_encode(m->tok, text, n_byte, flags, ids, n_id, e);
}

rkv_status rkv_detokenize(const rkv_model *m, const int32_t *ids, size_t n_id, int with_special,
                          char **text, size_t *n_byte, rkv_error *e)
{
    for (size_t i = 0; i < n_id; i++)
        if (ids[i] < 0 || ids[i] >= rkv_tok_n_vocab(m->tok))
            return rkv_fail(e, RKV_E_ARG, "token id #%zu is %d, expected 0 to %d", i, ids[i],
                            rkv_tok_n_vocab(m->tok) - 1);
    size_t n;
    return rkv_tok_decode(m->tok, ids, n_id, with_special, text, n_byte ? n_byte : &n, e);
}

int32_t rkv_token_bos(const rkv_model *m)
{
    return rkv_tok_bos(m->tok);
}

int32_t rkv_token_eos(const rkv_model *m)
{
    return rkv_tok_eos(m->tok);
}

int rkv_token_is_end(const rkv_model *m, int32_t id)
{
    return rkv_tok_is_end(m->tok, id);
}

/* Adds the text of a special token under `key`, unless the caller gave one. */
static rkv_status add_token(const rkv_model *m, cJSON *vars, const char *key, int32_t id,
                            rkv_error *e)
{
    if (!m || id < 0 || rkv_json_has(vars, key))
        return RKV_OK;
    size_t n;
    const char *piece = rkv_tok_piece(m->tok, id, &n);
    rkv_text text = {0};
    rkv_text_add(&text, piece, n);
    const cJSON *added = text.bad ? NULL : cJSON_AddStringToObject(vars, key, text.data);
    rkv_text_free(&text);
    return added ? RKV_OK : rkv_fail(e, RKV_E_MEM, "chat template: out of memory");
}

rkv_status rkv_template_render(const rkv_model *m, const char *template_text, const char *json,
                               char **text, size_t *n_byte, rkv_error *e)
{
    const char *t = template_text ? template_text : m ? m->chat_template : NULL;
    if (!t)
        return rkv_fail(e, RKV_E_ARG,
                        "the model has no chat template; name one with --chat-template (%s)",
                        rkv_template_names());
    cJSON *vars;
    size_t n;
    RKV_TRY(rkv_json_parse(&vars, json, strlen(json), "chat messages", e));
    rkv_status s = RKV_OK;
    if (!cJSON_IsObject(vars))
        s = rkv_fail(e, RKV_E_FORMAT, "chat messages: expected a JSON object with 'messages'");
    if (!s)
        s = add_token(m, vars, "bos_token", m ? rkv_tok_bos(m->tok) : -1, e);
    if (!s)
        s = add_token(m, vars, "eos_token", m ? rkv_tok_eos(m->tok) : -1, e);
    if (!s)
        s = rkv_chat_render(t, strlen(t), vars, text, n_byte ? n_byte : &n, e);
    cJSON_Delete(vars);
    return s;
}

const char *rkv_template_builtin(const char *name)
{
    return rkv_chat_builtin(name);
}

const char *rkv_template_names(void)
{
    return rkv_chat_builtin_list();
}

/* ---- machine ---- */

/* Read once: the text is handed out, and other threads may be looking at it. */
static char cpu_name[128] = "unknown CPU";
static pthread_once_t cpu_name_once = PTHREAD_ONCE_INIT;

static void read_cpu_name(void)
{
    FILE *f = fopen("/proc/cpuinfo", "r");
    char line[256];
    while (f && fgets(line, sizeof line, f)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) || !colon)
            continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(cpu_name, sizeof cpu_name, "%.120s", colon + 1 + strspn(colon + 1, " \t"));
        break;
    }
    if (f)
        fclose(f);
}

static int numa_nodes(void)
{
#ifdef HAVE_NUMA
    if (numa_available() >= 0)
        return numa_num_configured_nodes();
#endif
    return 1;
}

rkv_status rkv_machine_get_info(rkv_machine_info *out, rkv_error *e)
{
    rkv_backend be;
    RKV_TRY(rkv_backend_init(&be, e));
    pthread_once(&cpu_name_once, read_cpu_name);
    *out = (rkv_machine_info){
        .cpu = cpu_name,
        .tier = be.tier,
        .tier_max = rkv_cpu_tier_name(rkv_cpu_detect()),
        .blas = rkv_blas_name(),
        .n_cpu = rkv_thread_available(),
        .n_numa_node = numa_nodes(),
    };
    out->available_bytes = rkv_mem_available(&out->memory_bytes);
    return RKV_OK;
}

/* The kernel that dispatch picks for one (op, type): the last row whose tier the mask allows. */
typedef struct kernel_row {
    const char *op, *type, *name;
    uint32_t isa;
} kernel_row;

static const kernel_row kernel_rows[] = {
#define RKV_KERNEL(op, dt, isa) {#op, #dt, "rkv_" #op "_" #dt "_" #isa, RKV_ISA_##isa},
#include "kernels.def"
#undef RKV_KERNEL
};

const char *rkv_machine_kernel(int i, const char **op, const char **type)
{
    const int n_row = (int)(sizeof kernel_rows / sizeof *kernel_rows);
    rkv_backend be;
    *op = *type = NULL;
    if (rkv_backend_init(&be, NULL))
        return NULL;
    int seen = -1;
    for (int r = 0; r < n_row; r++) {
        if (kernel_rows[r].isa != RKV_ISA_ref)      /* each pair has one scalar row, its first */
            continue;
        if (++seen != i)
            continue;
        const char *name = kernel_rows[r].name;
        *op = kernel_rows[r].op;
        *type = kernel_rows[r].type;
        for (int k = r; k < n_row; k++)
            if (!strcmp(kernel_rows[k].op, *op) && !strcmp(kernel_rows[k].type, *type) &&
                (be.ops.features & kernel_rows[k].isa) == kernel_rows[k].isa)
                name = kernel_rows[k].name;
        return name;
    }
    return NULL;
}
