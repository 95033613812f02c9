//! Why a test failed, as the last thing it says.
//!
//! A failing test prints the logs of its processes as they are dropped, some hundred lines; who
//! keeps the end of an output, as CI does, would keep no word of the reason.
//!
//! Owns: the words of a thread's panic. Promises: they are printed once more, past the capture of
//! test output, by each [`tell`] while it unwinds. Never: changes what is printed anyway.

use std::cell::RefCell;
use std::io::Write;
use std::panic;
use std::sync::Once;

thread_local! {
    static WORDS: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps the words of every panic from here on.
pub(crate) fn keep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            WORDS.set(Some(panic.to_string()));
            before(panic);
        }));
    });
}

/// Says why this thread panics, if it does.
pub(crate) fn tell() {
    if std::thread::panicking() {
        let thread = std::thread::current();
        let test = thread.name().unwrap_or("a test");
        let words = WORDS.with_borrow(Clone::clone);
        let _ = writeln!(std::io::stderr().lock(), "--- {test}: {}", words.unwrap_or_default());
    }
}
