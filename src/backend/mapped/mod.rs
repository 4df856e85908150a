//! What the backends share whose device writes words in page-locked host memory.
