//! The radix tree of reusable prefixes, whole pages at a time. See the parent module.
