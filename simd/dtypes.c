#include "dtypes.h"

#include <strings.h>

static const rkv_dtype_desc table[RKV_DT_COUNT] = {
#define RKV_DTYPE(name, id, len, bytes) [RKV_DT_##name] = {#name, id, len, bytes},
    RKV_DTYPES
#undef RKV_DTYPE
};

const rkv_dtype_desc *rkv_dtype_get(rkv_dtype dt)
{
    return &table[dt];
}

rkv_dtype rkv_dtype_from_ggml(uint32_t id)
{
    for (int i = 0; i < RKV_DT_COUNT; i++)
        if (table[i].ggml_id == id)
            return (rkv_dtype)i;
    return RKV_DT_COUNT;
}

rkv_dtype rkv_dtype_from_name(const char *name)
{
    for (int i = 0; i < RKV_DT_COUNT; i++)
        if (!strcasecmp(table[i].name, name))
            return (rkv_dtype)i;
    return RKV_DT_COUNT;
}
