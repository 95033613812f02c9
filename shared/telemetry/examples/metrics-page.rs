//! Prints `docs/metrics.md`.

#[expect(clippy::print_stdout, reason = "the page is what it is for")]
fn main() {
    print!("{}", berth_telemetry::metric::page());
}
