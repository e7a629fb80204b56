// The module of spgnn.samplers' loops. Python's lock is released in every loop.

#define SPGNN_MODULE

#include "samplers.h"

NB_MODULE(_samplers, m) {
    spgnn::import_numpy();
    m.doc() = "Loops of spgnn.samplers; its classes check their arguments.";
    spgnn::define_draws(m);
    spgnn::define_induce(m);
    spgnn::define_operators(m);
    spgnn::define_frontier(m);
    spgnn::define_blocks(m);
}
