/* Fuzz target: the input is a template, rendered with fixed variables and a tenth of the usual
 * limits. */
#include "config.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "text/chat_ast.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char variables[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be brief. \"}, {\"role\": \"user\", "
    "\"content\": \"Hi \\u00e9\\u4e2d\"}, "
    "{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": \"abc123456\", "
    "\"function\": {\"name\": \"f\", "
    "\"arguments\": {\"x\": 1.5, \"y\": [true, null]}}}]}, {\"role\": \"tool\", \"content\": \"<a> "
    "& 'b'\"}], "
    "\"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", \"parameters\": "
    "{\"type\": \"object\", \"properties\": {}}}}], "
    "\"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"eos_token\": \"</s>\", \"s\": "
    "\"Hello World\", \"l\": [3, 1, 2], "
    "\"d\": {\"a\": 1, \"b\": {\"c\": \"x\"}}, \"i\": 7, \"f\": 2.5, \"nil\": null}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static cJSON *vars;
    if (!vars && !(vars = cJSON_Parse(variables)))
        abort();
    const uint64_t before = rkv_mem_current();
    rkv_error e = {0};
    jctx c = {
        .e = &e, .steps = RKV_CHAT_MAX_STEPS / 10 * 9, .memory = RKV_CHAT_MAX_MEMORY / 10 * 9};
    const rkv_status s = rkv_j_render(&c, (const char *)data, n, vars);
    if (s ? e.status != s || strncmp(e.text, "chat template line ", 19)
          : strlen(c.out.data) > c.out.n)
        abort();
    rkv_j_free_all(&c);
    if (rkv_mem_current() != before)
        abort();
    return 0;
}
