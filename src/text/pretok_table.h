/* Hand-written scanners behind the table of pre-tokenizers; each is an rkv_pretok_scan. */
#ifndef RKV_PRETOK_TABLE_H
#define RKV_PRETOK_TABLE_H

#include "text/pretok.h"

rkv_pretok_scan rkv_pretok_scan_gpt2, rkv_pretok_scan_digit, rkv_pretok_scan_llama3,
    rkv_pretok_scan_qwen2;

#endif
