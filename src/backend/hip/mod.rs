//! AMD: a stream of the HIP runtime.
