/* Runs a CUDA kernel on the host, thread after thread: for kernels without barriers, shuffles or
 * shared memory only, which is all that this header lets compile. */
#ifndef RKV_SIMT_H
#define RKV_SIMT_H

#define __global__

struct simt_index {
    unsigned x, y, z;
};
static simt_index gridDim, blockDim, blockIdx, threadIdx;

/* kernel<<<n_block, n_thread>>>(...): call is a function object that calls the kernel. Blocks and
 * threads run from the last to the first, so that no kernel leans on the natural order. Refused
 * (the runtime's cudaErrorInvalidConfiguration) where a device would refuse. */
template <class F> static int simt_launch(unsigned n_block, unsigned n_thread, F call)
{
    if (n_block == 0 || n_block > 0x7fffffff || n_thread == 0 || n_thread > 1024)
        return 9;
    gridDim = {n_block, 1, 1};
    blockDim = {n_thread, 1, 1};
    for (unsigned b = n_block; b-- > 0;)
        for (unsigned t = n_thread; t-- > 0;) {
            blockIdx = {b, 0, 0};
            threadIdx = {t, 0, 0};
            call();
        }
    return 0;
}

#endif
