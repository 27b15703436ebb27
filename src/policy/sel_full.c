/* Keeps everything. */
#include "config.h"
#include "policy/policy.h"

const rkv_selector rkv_selector_full = {.name = "full", .keeps_all = 1};
