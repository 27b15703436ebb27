/* Renders templates for scripts: each line of standard input is {"template": text, "vars": object},
 * each line of output {"text": rendered} or {"error": message, "status": number}. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "text/chat.h"

static rkv_status answer(const char *line, size_t n, rkv_text *t, rkv_error *e)
{
    cJSON *request = NULL;
    const cJSON *vars = NULL;
    const char *text = NULL;
    char *out = NULL;
    size_t n_out = 0;
    rkv_status s = rkv_json_parse(&request, line, n, "request", e);
    if (!s)
        s = rkv_json_string(&text, request, "template", "request", e);
    if (!s)
        s = rkv_json_get(&vars, request, "vars", "request", e);
    if (!s)
        s = rkv_chat_render(text, strlen(text), vars, &out, &n_out, e);
    if (!s)
        rkv_text_json(t, out, n_out);
    rkv_mem_free(out);
    cJSON_Delete(request);
    return s;
}

int main(void)
{
    char *line = NULL;
    size_t size = 0;
    ssize_t n;
    while ((n = getline(&line, &size, stdin)) > 0) {
        rkv_text t = {0};
        rkv_error e = {0};
        rkv_text_add(&t, "{\"text\": ", 9);
        const rkv_status s = answer(line, (size_t)n, &t, &e);
        if (s) {
            rkv_text_free(&t);
            rkv_text_printf(&t, "{\"status\": %d, \"error\": ", (int)s);
            rkv_text_json(&t, e.text, strlen(e.text));
        }
        rkv_text_add(&t, "}\n", 2);
        if (t.bad)
            return 1;
        fwrite(t.data, 1, t.n, stdout);
        fflush(stdout);
        rkv_text_free(&t);
    }
    free(line);
    return 0;
}
