//! Flows over real servers and real processes, with kills.
