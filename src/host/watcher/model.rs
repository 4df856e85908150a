//! The watcher's protocols under the model checker.
