/* rkv template: renders a chat template. */
#include "config.h"
#include "common.h"

#include <stdio.h>
#include <stdlib.h>

static int render(const opts *o, const rkv_model *m, const char *template_text, const char *json)
{
    char *text;
    size_t n;
    rkv_error e;
    if (rkv_template_render(m, template_text, json, &text, &n, &e)) {
        fail(&e);
        return e.status == RKV_E_MEM ? EXIT_MEMORY : EXIT_INPUT;    /* all inputs are files here */
    }
    const int code = print_text(o, text, n);
    rkv_free(text);
    return code;
}

int cmd_template(const opts *o)
{
    char *json = NULL, *template_text = NULL;
    size_t n;
    rkv_error e;
    rkv_model *m = NULL;
    if (!o->chat_template && !o->model)
        return usage("template: name a model with -m, or a template with --chat-template (%s, or a "
                     "file)", rkv_template_names());
    int code = find_template(&template_text, o->chat_template);
    if (!code && o->model && rkv_model_load_vocab(&m, o->model, &e))
        code = fail(&e);
    if (!code)
        code = read_text(&json, &n, "-");
    if (!code)
        code = render(o, m, template_text, json);
    rkv_model_free(m);
    free(json);
    free(template_text);
    return code;
}
