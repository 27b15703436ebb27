/* Chat formats by the name of their family: the marks and line breaks that the models were trained
 * with, as published with them. */
#include "config.h"
#include "text/chat.h"

#include <string.h>

static const char chatml[] =
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}";

/* A system message goes into the first user message. */
static const char llama2[] =
    "{% set ns = namespace(system='') %}"
    "{% for m in messages %}"
    "{% if m.role == 'system' %}"
    "{% set ns.system = '<<SYS>>\\n' + m.content + '\\n<</SYS>>\\n\\n' %}"
    "{% elif m.role == 'user' %}"
    "{{ bos_token + '[INST] ' + (ns.system + m.content) | trim + ' [/INST]' }}"
    "{% set ns.system = '' %}"
    "{% elif m.role == 'assistant' %}"
    "{{ ' ' + m.content | trim + ' ' + eos_token }}"
    "{% else %}{{ raise_exception('llama2 knows the roles system, user and assistant') }}{% endif "
    "%}"
    "{% endfor %}";

static const char llama3[] = "{{ bos_token }}"
                             "{% for m in messages %}"
                             "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + "
                             "m.content | trim + '<|eot_id|>' }}"
                             "{% endfor %}"
                             "{% if add_generation_prompt %}{{ "
                             "'<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}";

/* A system message goes into the next user message. */
static const char mistral[] =
    "{{ bos_token }}"
    "{% set ns = namespace(system='') %}"
    "{% for m in messages %}"
    "{% if m.role == 'system' %}{% set ns.system = m.content + '\\n\\n' %}"
    "{% elif m.role == 'user' %}"
    "{{ '[INST] ' + ns.system + m.content + ' [/INST]' }}{% set ns.system = '' %}"
    "{% elif m.role == 'assistant' %}{{ ' ' + m.content + eos_token }}"
    "{% else %}{{ raise_exception('mistral knows the roles system, user and assistant') }}{% endif "
    "%}"
    "{% endfor %}";

/* The assistant is called model; there is no system role, so its text goes before the user's. */
static const char gemma[] =
    "{{ bos_token }}"
    "{% set ns = namespace(system='') %}"
    "{% for m in messages %}"
    "{% if m.role == 'system' %}{% set ns.system = m.content | trim + '\\n\\n' %}"
    "{% else %}"
    "{{ '<start_of_turn>' + ('model' if m.role == 'assistant' else m.role) + '\\n' + ns.system"
    " + m.content | trim + '<end_of_turn>\\n' }}{% set ns.system = '' %}"
    "{% endif %}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}";

static const char phi3[] =
    "{% for m in messages %}"
    "{{ '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% else %}{{ eos_token }}{% endif %}";

static const char zephyr[] =
    "{% for m in messages %}"
    "{{ '<|' + m.role + '|>\\n' + m.content + eos_token + '\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}";

const char *rkv_chat_builtin(const char *name)
{
    static const struct {
        const char *name, *text;
    } row[] = {{"chatml", chatml}, {"llama2", llama2}, {"llama3", llama3}, {"mistral", mistral},
               {"gemma", gemma}, {"phi3", phi3}, {"zephyr", zephyr}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        if (!strcmp(row[i].name, name))
            return row[i].text;
    return NULL;
}

const char *rkv_chat_builtin_list(void)
{
    return "chatml, llama2, llama3, mistral, gemma, phi3, zephyr";
}
