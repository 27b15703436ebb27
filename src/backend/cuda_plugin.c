#include "config.h"
#include "backend/cuda_plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/mem.h"

#define INSTALLED RKV_PKGLIBDIR "/libripplekv-cuda.so"

static struct {
    const rkv_cuda_plugin *table;
    rkv_error error;            /* of the one attempt */
} plugin;
static pthread_once_t once = PTHREAD_ONCE_INIT;

rkv_status rkv_cuda_plugin_open(const rkv_cuda_plugin **out, const char *path, rkv_error *e)
{
    *out = NULL;
    void *l = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!l)
        return rkv_fail(e, RKV_E_UNSUPPORTED,
                        "CUDA: no plug-in: %.300s (configure --with-cuda builds it)", dlerror());
    *out = dlsym(l, RKV_CUDA_PLUGIN_SYMBOL);
    if (*out)
        return RKV_OK;
    dlclose(l);
    return rkv_fail(e, RKV_E_UNSUPPORTED,
                    "CUDA: %.200s is no plug-in for ripplekv %s: it lacks " RKV_CUDA_PLUGIN_SYMBOL,
                    path, rkv_version());
}

static void load(void)
{
    const char *path = secure_getenv("RKV_CUDA_PLUGIN");
    rkv_cuda_plugin_open(&plugin.table, path && *path ? path : INSTALLED, &plugin.error);
}

rkv_status rkv_cuda_plugin_load(const rkv_cuda_plugin **out, rkv_error *e)
{
    pthread_once(&once, load);
    *out = plugin.table;
    if (!plugin.table && e)
        *e = plugin.error;
    return plugin.table ? RKV_OK : RKV_E_UNSUPPORTED;
}

rkv_status rkv_cuda_plugin_devices(rkv_device_info **out, int *n, const rkv_cuda_plugin *p,
                                   rkv_error *e)
{
    int count = 0;
    *out = NULL;
    *n = 0;
    RKV_TRY(p->device_count(&count, e));
    *out = rkv_mem_calloc((size_t)count, sizeof **out);
    if (!*out)
        return rkv_fail(e, RKV_E_MEM, "CUDA: out of memory for a list of %d devices", count);
    for (*n = 0; *n < count; ++*n)
        p->device_info(&(*out)[*n], *n);
    return RKV_OK;
}

rkv_status rkv_device_list(rkv_device_info **out, int *n, rkv_error *e)
{
    const rkv_cuda_plugin *p;
    *out = NULL;
    *n = 0;
    RKV_TRY(rkv_cuda_plugin_load(&p, e));
    return rkv_cuda_plugin_devices(out, n, p, e);
}
