/* Functions of a library that is loaded at run time. */
#ifndef RKV_SYMBOL_H
#define RKV_SYMBOL_H

#include <dlfcn.h>
#include <string.h>

/* Fills the pointer at fn, to a function or an object, with the library's symbol. 0: it has none;
 * dlerror says so. ISO C has no conversion from dlsym's object pointer to a function. */
static inline int rkv_symbol_find(void *library, const char *name, void *fn)
{
    void *symbol = dlsym(library, name);
    memcpy(fn, &symbol, sizeof symbol);
    return symbol != NULL;
}

#endif
