//! NVIDIA: a stream of the CUDA driver.
