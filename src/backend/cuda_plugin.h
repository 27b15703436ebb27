/* The CUDA plug-in: a shared object that the library loads when a GPU is asked about, so that the
 * library itself needs no CUDA. cuda/plugin.c fills the table, cuda_plugin.c finds and loads it. */
#ifndef RKV_CUDA_PLUGIN_H
#define RKV_CUDA_PLUGIN_H

#include "rkv.h"

/* What the plug-in exports, as a constant of the name RKV_CUDA_PLUGIN_SYMBOL. Another layout, here
 * or in rkv_device_info or rkv_error, gets another name, so that no library reads a foreign one.
 * Devices are numbered from 0 in the runtime's order (CUDA_VISIBLE_DEVICES counts). Every function
 * may be called from any thread; those that take a device leave it the thread's current one. */
#define RKV_CUDA_PLUGIN_SYMBOL "rkv_cuda_plugin_v1"

typedef struct rkv_cuda_plugin {
    /* RKV_OK with *n >= 1, or RKV_E_UNSUPPORTED with *n = 0: no driver, one that is too old, no
     * device. */
    rkv_status (*device_count)(int *n, rkv_error *e);
    /* Fills *out; what cannot be asked stays 0 and is named in out->trouble. Starts the device to
     * learn its free memory, which takes a part of a second and some memory on it. */
    void (*device_info)(rkv_device_info *out, int device);
    /* rkv_noise_normal on a device: out[n] in host memory, n >= 0; contract and tolerance in
     * noise.h. RKV_E_ARG: n; RKV_E_MEM: the device has no room for n deviates;
     * RKV_E_UNSUPPORTED: device_count's reasons; RKV_E_INTERNAL: another call failed.
     * After an error out's contents are undefined. */
    rkv_status (*noise_normal)(double *out, uint64_t key, uint64_t first, int n, int device,
                               rkv_error *e);
} rkv_cuda_plugin;
RKV_API extern const rkv_cuda_plugin rkv_cuda_plugin_v1;    /* in the plug-in, not in the library */

/* Loads one file as the plug-in; it stays loaded. RKV_E_UNSUPPORTED: cannot be loaded, or exports
 * no table of this version. */
rkv_status rkv_cuda_plugin_open(const rkv_cuda_plugin **out, const char *path, rkv_error *e);

/* The plug-in that the environment variable RKV_CUDA_PLUGIN names (a path; ignored in set-user-ID
 * programs), or the installed one. The first call decides; later calls cost nothing. */
rkv_status rkv_cuda_plugin_load(const rkv_cuda_plugin **out, rkv_error *e);

/* rkv_device_list of one plug-in. */
rkv_status rkv_cuda_plugin_devices(rkv_device_info **out, int *n, const rkv_cuda_plugin *p,
                                   rkv_error *e);

#endif
