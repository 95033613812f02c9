//! The kinds of metric.

use std::sync::OnceLock;
use std::time::Duration;

use opentelemetry::metrics::Meter;
use opentelemetry::{Key, KeyValue, metrics};

use super::label::Label;

/// The declaration of a metric.
#[derive(Debug)]
pub struct About {
    /// The name, as OTLP carries it.
    pub name: &'static str,
    /// The unit, in UCUM.
    pub unit: &'static str,
    /// The meaning, in a sentence of the reference page.
    pub meaning: &'static str,
    /// The labels each value has.
    pub labels: &'static [&'static str],
}

/// A metric, whatever its kind.
pub trait Metric: Sync {
    /// The declaration of the metric.
    fn about(&self) -> &About;

    /// `counter`, `gauge` or `histogram`.
    fn kind(&self) -> &'static str;

    /// Starts to keep its values.
    #[doc(hidden)]
    fn bind(&self, meter: &Bound<'_>);
}

/// The SDK's meter; only this crate makes one.
#[derive(Debug)]
pub struct Bound<'a>(pub(crate) &'a Meter);

/// A counter of events.
#[derive(Debug)]
pub struct Counter<const N: usize> {
    about: About,
    instrument: OnceLock<metrics::Counter<u64>>,
}

/// A present value.
#[derive(Debug)]
pub struct Gauge<const N: usize> {
    about: About,
    instrument: OnceLock<metrics::Gauge<u64>>,
}

/// A distribution of durations.
#[derive(Debug)]
pub struct Histogram<const N: usize> {
    about: About,
    /// The upper bounds of its buckets, in seconds.
    bounds: &'static [f64],
    instrument: OnceLock<metrics::Histogram<f64>>,
}

impl<const N: usize> Counter<N> {
    pub(super) const fn new(about: About) -> Self {
        Self { about, instrument: OnceLock::new() }
    }

    /// Adds to the count, with one value for each label in the order of the registry.
    pub fn add(&self, count: u64, labels: [Label; N]) {
        if let Some(instrument) = self.instrument.get() {
            instrument.add(count, &attributes(&self.about, labels));
        }
    }
}

impl<const N: usize> Gauge<N> {
    pub(super) const fn new(about: About) -> Self {
        Self { about, instrument: OnceLock::new() }
    }

    /// Sets the value.
    pub fn set(&self, value: u64, labels: [Label; N]) {
        if let Some(instrument) = self.instrument.get() {
            instrument.record(value, &attributes(&self.about, labels));
        }
    }
}

impl<const N: usize> Histogram<N> {
    pub(super) const fn new(about: About, bounds: &'static [f64]) -> Self {
        Self { about, bounds, instrument: OnceLock::new() }
    }

    /// Records a duration.
    pub fn record(&self, took: Duration, labels: [Label; N]) {
        if let Some(instrument) = self.instrument.get() {
            instrument.record(took.as_secs_f64(), &attributes(&self.about, labels));
        }
    }
}

fn attributes<const N: usize>(about: &About, labels: [Label; N]) -> [KeyValue; N] {
    let mut names = about.labels.iter();
    labels.map(|label| {
        // There are as many names as labels: the registry's macro counts them.
        let name = names.next().copied().unwrap_or_default();
        KeyValue::new(Key::from_static_str(name), label.0)
    })
}

macro_rules! metric {
    ($type:ident, $kind:literal, |$self:ident, $meter:ident| $build:expr) => {
        impl<const N: usize> Metric for $type<N> {
            fn about(&self) -> &About {
                &self.about
            }

            fn kind(&self) -> &'static str {
                $kind
            }

            fn bind(&$self, $meter: &Bound<'_>) {
                // If it is bound twice, the first binding remains.
                let _ = $self.instrument.set($build);
            }
        }
    };
}

metric!(Counter, "counter", |self, meter| {
    let About { name, unit, meaning, .. } = self.about;
    meter.0.u64_counter(name).with_unit(unit).with_description(meaning.trim_start()).build()
});
metric!(Gauge, "gauge", |self, meter| {
    let About { name, unit, meaning, .. } = self.about;
    meter.0.u64_gauge(name).with_unit(unit).with_description(meaning.trim_start()).build()
});
metric!(Histogram, "histogram", |self, meter| {
    let About { name, unit, meaning, .. } = self.about;
    let histogram =
        meter.0.f64_histogram(name).with_unit(unit).with_description(meaning.trim_start());
    histogram.with_boundaries(self.bounds.to_vec()).build()
});
