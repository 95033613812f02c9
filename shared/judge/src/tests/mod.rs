//! The judge is judged: hand-written logs with one violation each, and random ones without any.

mod correct;
mod disagree;
mod foreign;
mod history;
mod kernel;
mod log;
mod random;
mod reading;
mod storage;
mod storage_correct;
mod unanswered;
mod violations;
