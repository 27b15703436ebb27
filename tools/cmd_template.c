/* rkv template: renders a chat template. */
#include "config.h"
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cmd_template(const opts *o)
{
    char *json, *text = NULL, *from_file = NULL;
    size_t n, n_file;
    rkv_error e;
    if (!o->chat_template)
        return usage("template: name one with --chat-template (%s, or a file)", rkv_template_names());
    const char *builtin = rkv_template_builtin(o->chat_template);
    int code = builtin ? 0 : read_all(&from_file, &n_file, o->chat_template);
    if (!code)
        code = read_all(&json, &n, "-");
    if (code) {
        free(from_file);
        return code;
    }
    if (rkv_template_render(NULL, builtin ? builtin : from_file, json, &text, &n, &e)) {
        fail(&e);
        code = e.status == RKV_E_MEM ? EXIT_MEMORY : EXIT_INPUT;    /* both inputs are files here */
    } else if (o->json) {
        cJSON *root = cJSON_CreateObject();
        json_text(root, "text", text, n);
        code = json_print(root);
    } else {
        fwrite(text, 1, n, stdout);
        code = finish_stdout();
    }
    rkv_free(text);
    free(json);
    free(from_file);
    return code;
}
