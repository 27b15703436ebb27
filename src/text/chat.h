/* Chat templates: the subset of Jinja that models' templates use, rendered in C with limits on
 * depth, steps and output, so that no template from a file can hang or exhaust the process. Behaves
 * as jinja2 with trim_blocks, lstrip_blocks and loop controls. */
#ifndef RKV_CHAT_H
#define RKV_CHAT_H

#include <stddef.h>

#include <cjson/cJSON.h>

#include "base/err.h"

/* Renders n bytes of template with the members of vars (an object: messages, add_generation_prompt,
 * bos_token, eos_token, tools, ...) as its global variables. *out from rkv_mem_alloc, 0-terminated.
 * Whole numbers of vars are integers (1.0 prints as 1). Beyond transformers, whose sandbox forbids
 * it, templates may change lists and dicts (ids.append(...)); vars itself stays as it is.
 * RKV_E_FORMAT: syntax error or failure in the template, with its line; the text of raise_exception
 * is passed on. RKV_E_UNSUPPORTED: a construct, filter or test we do not have, named, with its
 * line. RKV_E_MEM. RKV_E_ARG: a limit was passed (which, and its value). */
rkv_status rkv_chat_render(const char *text, size_t n, const cJSON *vars, char **out, size_t *n_out,
                           rkv_error *e);

/* Template by a family's name ("chatml", "llama2", "llama3", "mistral", "gemma", "phi3", "zephyr");
 * NULL: unknown. */
const char *rkv_chat_builtin(const char *name);

/* The names, separated by ", ". */
const char *rkv_chat_builtin_list(void);

#endif
