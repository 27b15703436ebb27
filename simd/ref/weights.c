/* Block formats and products with rows of any type. Written for reading; sums in double. */
#include "config.h"
#include "kernels.h"

#include "fmt/iq4_nl.h"
#include "fmt/iq4_xs.h"
#include "fmt/q2_k.h"
#include "fmt/q3_k.h"
#include "fmt/q4_0.h"
#include "fmt/q4_1.h"
#include "fmt/q4_k.h"
#include "fmt/q5_0.h"
#include "fmt/q5_1.h"
#include "fmt/q5_k.h"
#include "fmt/q6_k.h"
#include "fmt/q8_0.h"

/* unpack of a block format, from its decoder. */
#define RKV_UNPACK(dt, len) \
    void rkv_unpack_##dt##_ref(float *out, const void *src, int64_t n) \
    { \
        const rkv_##dt *b = src; \
        for (int64_t i = 0; i < n / (len); i++) \
            rkv_##dt##_decode(out + i * (len), b + i); \
    }
RKV_UNPACK(q4_0, 32)
RKV_UNPACK(q4_1, 32)
RKV_UNPACK(q5_0, 32)
RKV_UNPACK(q5_1, 32)
RKV_UNPACK(q8_0, 32)
RKV_UNPACK(q2_k, 256)
RKV_UNPACK(q3_k, 256)
RKV_UNPACK(q4_k, 256)
RKV_UNPACK(q5_k, 256)
RKV_UNPACK(q6_k, 256)
RKV_UNPACK(iq4_nl, 32)
RKV_UNPACK(iq4_xs, 256)

#define RKV_PACK(dt) \
    void rkv_pack_##dt##_ref(void *dst, const float *in, int64_t n) \
    { \
        rkv_##dt *b = dst; \
        for (int64_t i = 0; i < n / 32; i++) \
            rkv_##dt##_encode(b + i, in + 32 * i); \
    }
RKV_PACK(q4_0)
RKV_PACK(q8_0)

enum { CHUNK = 256 }; /* a multiple of every block's length */

/* Product of a row, unpacked chunk by chunk, with one input. */
static float product(const void *w, const float *x, int n_in, RKV_PROTO_unpack(*unpack),
                     rkv_dtype dt)
{
    const rkv_dtype_desc *d = rkv_dtype_get(dt);
    float row[CHUNK];
    double sum = 0.0;
    for (int i0 = 0; i0 < n_in; i0 += CHUNK) {
        const int n = n_in - i0 < CHUNK ? n_in - i0 : CHUNK;
        unpack(row, (const char *)w + rkv_dtype_bytes(d, (size_t)i0), n);
        for (int i = 0; i < n; i++)
            sum += (double)row[i] * (double)x[i0 + i];
    }
    return (float)sum;
}

#define RKV_DTYPE(dt, id, len, bytes) \
    RKV_PROTO_matvec(rkv_matvec_##dt##_ref) \
    { \
        for (int r = 0; r < n_out; r++) \
            for (int j = 0; j < n_x; j++) \
                y[j * ldy + r] = product((const char *)w + r * w_stride, x + j * ldx, n_in, \
                                         rkv_unpack_##dt##_ref, RKV_DT_##dt); \
    }
RKV_DTYPES
#undef RKV_DTYPE
