#include "config.h"
#include "profile/world.h"

#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

#ifdef HAVE_MPI
#include <mpi.h>
#else
#include "base/symbol.h"

/* What Open MPI's functions take, version 4 and 5 (its mpi.h): handles are pointers to objects of
 * the library, and constants are those of MPI. */
#define LIBRARY "libmpi.so.40"
typedef struct handle *MPI_Comm, *MPI_Datatype, *MPI_Op;
typedef struct status MPI_Status;
#define MPI_STATUS_IGNORE ((MPI_Status *)0)
enum { MPI_THREAD_FUNNELED = 1 };
#endif

/* Name, return type and parameters of what is used of MPI. */
#define FUNCTIONS(F)                                                                               \
    F(Initialized, (int *))                                                                        \
    F(Finalized, (int *))                                                                          \
    F(Init_thread, (int *, char ***, int, int *))                                                  \
    F(Finalize, (void))                                                                            \
    F(Comm_rank, (MPI_Comm, int *))                                                                \
    F(Comm_size, (MPI_Comm, int *))                                                                \
    F(Send, (const void *, int, MPI_Datatype, int, int, MPI_Comm))                                 \
    F(Recv, (void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Status *))                         \
    F(Bcast, (void *, int, MPI_Datatype, int, MPI_Comm))                                           \
    F(Iprobe, (int, int, MPI_Comm, int *, MPI_Status *))                                           \
    F(Allreduce, (const void *, void *, int, MPI_Datatype, MPI_Op, MPI_Comm))

static struct {
#define MEMBER(name, parameters) int (*name) parameters;
    FUNCTIONS(MEMBER)
#undef MEMBER
    MPI_Comm world;
    MPI_Datatype byte, integer;
    MPI_Op min;
    int any_source;
    rkv_error error;            /* of the one attempt */
    int ready, started;
    int met;                    /* all ranks came to their last meeting so far */
} mpi;
static pthread_once_t once = PTHREAD_ONCE_INIT;

enum { TAG_FAILED = 7301, TAG_SIZE, TAG_DATA };

static void finalize(void)
{
    int over = 0;
    if (mpi.started && mpi.met && !mpi.Finalized(&over) && !over)
        mpi.Finalize();
}

#ifdef HAVE_MPI
static void load(void)
{
#define TAKE(name, parameters) mpi.name = MPI_##name;
    FUNCTIONS(TAKE)
#undef TAKE
    mpi.world = MPI_COMM_WORLD;
    mpi.byte = MPI_BYTE;
    mpi.integer = MPI_INT;
    mpi.min = MPI_MIN;
    mpi.any_source = MPI_ANY_SOURCE;
    mpi.ready = 1;
}
#else
static void load(void)
{
    void *l = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL);   /* its components look into it */
    if (!l) {
        rkv_fail(&mpi.error, RKV_E_UNSUPPORTED,
                 "started by mpirun, but Open MPI: %.200s; install libopenmpi3, or start the "
                 "parts by themselves with --shard i/N", dlerror());
        return;
    }
    int all = 1;
#define FIND(name, parameters) all &= rkv_symbol_find(l, "MPI_" #name, &mpi.name);
    FUNCTIONS(FIND)
#undef FIND
    all &= rkv_symbol_find(l, "ompi_mpi_comm_world", &mpi.world);
    all &= rkv_symbol_find(l, "ompi_mpi_byte", &mpi.byte);
    all &= rkv_symbol_find(l, "ompi_mpi_int", &mpi.integer);
    all &= rkv_symbol_find(l, "ompi_mpi_op_min", &mpi.min);
    mpi.any_source = -1;
    mpi.ready = all;
    if (!all)
        rkv_fail(&mpi.error, RKV_E_UNSUPPORTED,
                 "started by mpirun, but %s lacks what Open MPI 4 has; build with "
                 "configure --with-mpi, or use --shard i/N", LIBRARY);
}
#endif

/* Variables by which launchers tell a process that it is one of several. */
static int launched(const char **foreign)
{
    static const char *const others[] = {"PMI_SIZE", "MPI_LOCALNRANKS"};
    const char *n = getenv("OMPI_COMM_WORLD_SIZE");
    *foreign = NULL;
    if (n)
        return atoi(n) > 1;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if ((n = getenv(others[i])) && atoi(n) > 1) {
            *foreign = others[i];
            return 1;
        }
    return 0;
}

static rkv_status start(rkv_error *e)
{
    int there = 0, provided;
    if (mpi.Initialized(&there))
        return rkv_fail(e, RKV_E_INTERNAL, "MPI: MPI_Initialized failed");
    if (there)                                  /* by the host, who also ends it */
        return RKV_OK;
    if (mpi.Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided))
        return rkv_fail(e, RKV_E_INTERNAL, "MPI: MPI_Init_thread failed");
    mpi.started = 1;
    atexit(finalize);
    return RKV_OK;
}

rkv_status rkv_world_open(rkv_world *r, rkv_error *e)
{
    const char *foreign;
    *r = (rkv_world){.size = 1};
    if (!launched(&foreign))
        return RKV_OK;
#ifndef HAVE_MPI
    if (foreign)
        return rkv_fail(e, RKV_E_UNSUPPORTED,
                        "one of several processes (%s is set), but of an MPI other than Open MPI; "
                        "build with configure --with-mpi, or use --shard i/N", foreign);
#endif
    pthread_once(&once, load);
    if (!mpi.ready) {
        if (e)
            *e = mpi.error;
        return RKV_E_UNSUPPORTED;
    }
    RKV_TRY(start(e));
    if (mpi.Comm_rank(mpi.world, &r->rank) || mpi.Comm_size(mpi.world, &r->size))
        return rkv_fail(e, RKV_E_INTERNAL, "MPI: cannot ask for the number of ranks");
    return RKV_OK;
}

void rkv_world_fail(const rkv_world *r)
{
    for (int to = 0; to < r->size; to++)
        if (to != r->rank)
            mpi.Send(&(char){0}, 1, mpi.byte, to, TAG_FAILED, mpi.world);
}

int rkv_world_failed(const rkv_world *r)
{
    int there = 0;
    return r->size > 1 && !mpi.Iprobe(mpi.any_source, TAG_FAILED, mpi.world, &there,
                                      MPI_STATUS_IGNORE) && there;
}

rkv_status rkv_world_agree(const rkv_world *r, rkv_status mine, rkv_error *e)
{
    struct {
        int status;
        char text[sizeof e->text];
    } told = {mine, ""};
    if (r->size == 1)
        return mine;
    rkv_log(RKV_LOG_DEBUG, "rank %d of %d waits for the others", r->rank, r->size);
    /* One that only stopped because another failed is not the cause. */
    mpi.met = 0;
    int rank = !mine ? INT_MAX : mine == RKV_E_CANCELLED ? INT_MAX / 2 + r->rank : r->rank;
    int first = rank;
    if (mpi.Allreduce(&rank, &first, 1, mpi.integer, mpi.min, mpi.world))
        return rkv_fail(e, RKV_E_INTERNAL, "MPI: the ranks cannot agree");
    mpi.met = 1;
    if (first == INT_MAX)
        return RKV_OK;
    const int from = first >= INT_MAX / 2 ? first - INT_MAX / 2 : first;
    if (from == r->rank && e)
        snprintf(told.text, sizeof told.text, "%.400s%s", e->text,
                 e->text[0] ? "" : rkv_status_name(mine));
    if (mpi.Bcast(&told, (int)sizeof told, mpi.byte, from, mpi.world))
        return rkv_fail(e, RKV_E_INTERNAL, "MPI: the ranks cannot agree");
    return from == r->rank ? mine : rkv_fail(e, (rkv_status)told.status, "rank %d: %s", from,
                                             told.text);
}

/* In pieces, so that no count overflows, and what there is no memory for can be let go. */
enum { PIECE = 1 << 16 };

static size_t piece(uint64_t n, uint64_t at)
{
    return n - at < PIECE ? (size_t)(n - at) : PIECE;
}

/* All of it is taken even when it cannot be kept: the sender waits for that. */
static rkv_status receive_one(int from, rkv_world_receive *receive, void *ctx, rkv_error *e)
{
    char lost[PIECE];
    uint64_t n = 0;
    int bad = mpi.Recv(&n, (int)sizeof n, mpi.byte, from, TAG_SIZE, mpi.world, MPI_STATUS_IGNORE);
    char *bytes = rkv_mem_alloc((size_t)n + 1);
    for (uint64_t at = 0; !bad && at < n; at += PIECE)
        bad = mpi.Recv(bytes ? bytes + at : lost, (int)piece(n, at), mpi.byte, from, TAG_DATA,
                       mpi.world, MPI_STATUS_IGNORE);
    rkv_status s = RKV_OK;
    if (bad)
        s = rkv_fail(e, RKV_E_INTERNAL, "MPI: nothing comes from rank %d", from);
    else if (!bytes)
        s = rkv_fail(e, RKV_E_MEM, "out of memory for %llu bytes of rank %d",
                     (unsigned long long)n, from);
    else
        s = receive(ctx, from, bytes, (size_t)n, e);
    rkv_mem_free(bytes);
    return s;
}

static rkv_status send_mine(const char *mine, uint64_t n, rkv_error *e)
{
    int bad = mpi.Send(&n, (int)sizeof n, mpi.byte, 0, TAG_SIZE, mpi.world);
    for (uint64_t at = 0; !bad && at < n; at += PIECE)
        bad = mpi.Send(mine + at, (int)piece(n, at), mpi.byte, 0, TAG_DATA, mpi.world);
    return bad ? rkv_fail(e, RKV_E_INTERNAL, "MPI: cannot send to rank 0") : RKV_OK;
}

rkv_status rkv_world_gather(const rkv_world *r, const void *mine, size_t n,
                            rkv_world_receive *receive, void *ctx, rkv_error *e)
{
    if (r->rank > 0)
        return send_mine(mine, n, e);
    rkv_status first = RKV_OK;
    for (int from = 1; from < r->size; from++) {
        const rkv_status one = receive_one(from, receive, ctx, first ? NULL : e);
        first = first ? first : one;            /* the others must be heard all the same */
    }
    return first;
}
