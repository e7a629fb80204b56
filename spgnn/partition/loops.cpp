// The extension of spgnn.partition. std::thread, not OpenMP: torch brings an OpenMP of its own.

#include "loops.h"

PYBIND11_MODULE(_loops, m) {
    m.doc() = "Loops of spgnn.partition; its cover, locality and entropy make their arguments.";
    spgnn::define_cover(m);
    spgnn::define_locality(m);
    spgnn::define_similarity(m);
}
