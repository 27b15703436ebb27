/* rkv inspect: model, machine with its GPUs, kernels. */
#include "config.h"
#include "common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* "devices": [...], and "no_device": why, when there are none. */
static int add_devices(cJSON *machine, rkv_error *e)
{
    rkv_device_info *d;
    int n;
    const rkv_status s = rkv_device_list(&d, &n, e);
    if (s && s != RKV_E_UNSUPPORTED)
        return s;
    cJSON *list = cJSON_AddArrayToObject(machine, "devices");
    for (int i = 0; i < n; i++) {
        cJSON *o = cJSON_CreateObject();
        char capability[32];
        snprintf(capability, sizeof capability, "%d.%d", d[i].cc_major, d[i].cc_minor);
        json_text(o, "name", d[i].name, strlen(d[i].name));
        cJSON_AddNumberToObject(o, "memory_bytes", (double)d[i].memory_bytes);
        cJSON_AddNumberToObject(o, "free_bytes", (double)d[i].free_bytes);
        cJSON_AddStringToObject(o, "compute_capability", capability);
        if (d[i].trouble[0])
            json_text(o, "trouble", d[i].trouble, strlen(d[i].trouble));
        cJSON_AddItemToArray(list, o);
    }
    if (s)
        json_text(machine, "no_device", e->text, strlen(e->text));
    rkv_free(d);
    return RKV_OK;
}

static cJSON *machine_object(const rkv_machine_info *i)
{
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "cpu", i->cpu);
    cJSON_AddNumberToObject(o, "n_cpu", i->n_cpu);
    cJSON_AddNumberToObject(o, "n_numa_node", i->n_numa_node);
    cJSON_AddNumberToObject(o, "memory_bytes", (double)i->memory_bytes);
    cJSON_AddNumberToObject(o, "available_bytes", (double)i->available_bytes);
    cJSON_AddStringToObject(o, "tier", i->tier);
    cJSON_AddStringToObject(o, "tier_max", i->tier_max);
    cJSON_AddStringToObject(o, "blas", i->blas);
    return o;
}

static cJSON *kernels_object(void)
{
    cJSON *o = cJSON_CreateObject();
    const char *op, *type, *name;
    for (int i = 0; (name = rkv_machine_kernel(i, &op, &type)); i++) {
        cJSON *of_op = cJSON_GetObjectItemCaseSensitive(o, op);
        if (!of_op)
            of_op = cJSON_AddObjectToObject(o, op);
        cJSON_AddStringToObject(of_op, type, name);
    }
    return o;
}

/* K and V bytes of one token in f16, over the layers that hold the whole context. */
static double kv_bytes_per_token(const rkv_model_info *i)
{
    return 2.0 * 2.0 * i->n_kv_head * i->d_head * (i->n_layer - i->n_layer_sliding);
}

static cJSON *model_object(const rkv_model *m)
{
    const rkv_model_info *i = rkv_model_get_info(m);
    const struct {
        const char *key;
        double value;
    } number[] = {
        {"n_layer", i->n_layer},
        {"n_head", i->n_head},
        {"n_kv_head", i->n_kv_head},
        {"d_head", i->d_head},
        {"d_model", i->d_model},
        {"d_ff", i->d_ff},
        {"n_vocab", i->n_vocab},
        {"n_ctx_train", i->n_ctx_train},
        {"n_layer_sliding", i->n_layer_sliding},
        {"sliding_window", i->sliding_window},
        {"n_param", (double)i->n_param},
        {"file_bytes", (double)i->file_bytes},
        {"step_bytes", (double)i->step_bytes},
        {"stream_bytes", (double)i->stream_bytes},
        {"kv_bytes_per_token_f16", kv_bytes_per_token(i)},
    };
    cJSON *o = cJSON_CreateObject();
    json_text(o, "path", i->path, strlen(i->path));
    json_text(o, "name", i->name, strlen(i->name));
    cJSON_AddStringToObject(o, "arch", i->arch);
    cJSON_AddStringToObject(o, "quantization", i->quantization);
    cJSON_AddStringToObject(o, "fingerprint", i->fingerprint);
    cJSON_AddStringToObject(o, "load", i->load);
    for (size_t k = 0; k < sizeof number / sizeof *number; k++)
        cJSON_AddNumberToObject(o, number[k].key, number[k].value);
    cJSON_AddBoolToObject(o, "has_chat_template", i->chat_template != NULL);
    return o;
}

static void print_list(const cJSON *list, int indent);

static void print_members(const cJSON *object, int indent)
{
    for (const cJSON *v = object->child; v; v = v->next) {
        char *value = cJSON_IsString(v) ? NULL : cJSON_PrintUnformatted(v);
        if (cJSON_IsObject(v)) {
            printf("%*s%s\n", indent, "", v->string);
            print_members(v, indent + 2);
        } else if (cJSON_IsArray(v)) {
            print_list(v, indent);
        } else {
            printf("%*s%-*s %s\n", indent, "", 24 - indent, v->string,
                   value ? value : v->valuestring);
        }
        free(value);
    }
}

/* Objects as name[0], name[1], ...; nothing for an empty list. */
static void print_list(const cJSON *list, int indent)
{
    int i = 0;
    for (const cJSON *v = list->child; v; v = v->next) {
        printf("%*s%s[%d]\n", indent, "", list->string, i++);
        print_members(v, indent + 2);
    }
}

/* Only looks at the file: its weights are copied or locked when that was asked for by name. */
static int look_at_model(rkv_model **m, const opts *o)
{
    opts mapped = *o;
    if (!strcmp(o->load_mode, "auto"))
        mapped.load_mode = "mmap";
    return load_model(m, &mapped);
}

int cmd_inspect(const opts *o)
{
    rkv_machine_info machine;
    rkv_error e;
    rkv_model *m = NULL;
    if (rkv_machine_get_info(&machine, &e))
        return fail(&e);
    const int bad = o->model ? look_at_model(&m, o) : 0;
    if (bad)
        return bad;
    cJSON *of_machine = machine_object(&machine);
    if (add_devices(of_machine, &e)) {
        cJSON_Delete(of_machine);
        rkv_model_free(m);
        return fail(&e);
    }
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "version", rkv_version());
    if (m)
        cJSON_AddItemToObject(root, "model", model_object(m));
    cJSON_AddItemToObject(root, "machine", of_machine);
    cJSON_AddItemToObject(root, "kernels", kernels_object());
    rkv_model_free(m);
    if (o->json)
        return json_print(root);
    print_members(root, 0);
    cJSON_Delete(root);
    return finish_stdout();
}
