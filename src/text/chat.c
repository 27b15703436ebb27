#include "config.h"
#include "text/chat.h"

#include <string.h>

#include "base/mem.h"
#include "text/chat_ast.h"

rkv_status rkv_j_render(jctx *c, const char *text, size_t n, const cJSON *vars)
{
    jtoken *tokens;
    jnode *root;
    jval v;
    jscope *scope;
    c->line = 1;
    RKV_TRY(rkv_j_intern(c, "loop", 4, &c->loop));
    RKV_TRY(rkv_j_lex(c, text, n, &tokens));
    RKV_TRY(rkv_j_parse(c, tokens, &root));
    RKV_TRY(rkv_j_check(c, root));
    c->line = 1;
    if (!cJSON_IsObject(vars))
        return rkv_j_fail(c, RKV_E_FORMAT, "the variables are not a JSON object");
    RKV_TRY(rkv_j_from_json(c, vars, &v));
    c->vars = v.dict;
    RKV_TRY(rkv_j_push_scope(c, NULL, root, &scope));
    RKV_TRY(rkv_j_exec(c, root));
    RKV_TRY(rkv_j_put(c, "", 0));               /* a text even when nothing was written */
    c->out.data[c->out.n] = 0;                  /* captured text may have stood behind it */
    return RKV_OK;
}

rkv_status rkv_chat_render(const char *text, size_t n, const cJSON *vars, char **out, size_t *n_out,
                           rkv_error *e)
{
    jctx c = {.e = e};
    const rkv_status s = rkv_j_render(&c, text, n, vars);
    if (!s) {
        *out = c.out.data;
        *n_out = c.out.n;
        c.out = (rkv_text){0};
    }
    rkv_j_free_all(&c);
    return s;
}
