//! Apple: a command queue with a shared event.
