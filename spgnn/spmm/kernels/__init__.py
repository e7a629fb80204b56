"""The loops: C++ on the CPU, CUDA on devices, buffers, and the slow references they are tested against."""
