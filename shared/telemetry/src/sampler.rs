//! The decision which traces are recorded.
//!
//! **Owns** `OTEL_TRACES_SAMPLER` and its argument. The SDK's own sampler decides by the ratio, so
//! all processes with the same ratio record the same traces. The SDK also reads the variable, but
//! it records everything without a message if it cannot use the value.

use opentelemetry::TraceId;
use opentelemetry::trace::SpanKind;
use opentelemetry_sdk::trace::{Sampler as SdkSampler, SamplingDecision, ShouldSample as _};

/// `OTEL_TRACES_SAMPLER`, as it was read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sampler {
    /// Whether a span with a parent is recorded exactly if its parent is.
    by_parent: bool,
    /// The part of all traces that is recorded, from 0 to 1.
    ratio: f64,
}

impl Default for Sampler {
    fn default() -> Self {
        Self::PARENT_OR_ALL
    }
}

impl Sampler {
    /// The standard's default: a span is recorded unless its parent was not.
    pub(crate) const PARENT_OR_ALL: Self = Self { by_parent: true, ratio: 1.0 };

    /// The sampler of that name. The error lists the valid names.
    pub(crate) fn parse(name: &str, argument: Option<&str>) -> Result<Self, String> {
        let (by_parent, kind) = match name.strip_prefix("parentbased_") {
            Some(kind) => (true, kind),
            None => (false, name),
        };
        let ratio = match kind {
            "always_on" => 1.0,
            "always_off" => 0.0,
            "traceidratio" => argument
                .map_or(Ok(1.0), |text| text.trim().parse().map_err(|_| text))
                .ok()
                .filter(|ratio| (0.0..=1.0).contains(ratio))
                .ok_or_else(|| "OTEL_TRACES_SAMPLER_ARG must be from 0 to 1".to_owned())?,
            _ => {
                return Err("OTEL_TRACES_SAMPLER must be always_on, always_off or traceidratio, \
                            or one of these after parentbased_"
                    .to_owned());
            }
        };
        Ok(Self { by_parent, ratio })
    }

    /// Whether a span is recorded; `parent` is whether its parent is recorded.
    pub(crate) fn decide(self, parent: Option<bool>, trace: u128) -> bool {
        match parent {
            Some(parent) if self.by_parent => parent,
            _ => self.includes(trace.into()),
        }
    }

    fn includes(self, trace: TraceId) -> bool {
        let by_ratio = SdkSampler::TraceIdRatioBased(self.ratio);
        let result = by_ratio.should_sample(None, trace, "", &SpanKind::Internal, &[], &[]);
        result.decision == SamplingDecision::RecordAndSample
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_parent_decides_unless_it_is_told_not_to() {
        let off = Sampler::parse("parentbased_always_off", None).unwrap();
        assert_eq!((off.decide(Some(true), 1), off.decide(None, 1)), (true, false));
        let on = Sampler::parse("always_on", None).unwrap();
        assert!(on.decide(Some(false), u128::MAX) && on.decide(None, u128::MAX));
        assert!(!Sampler::default().decide(Some(false), 1));
    }

    #[test]
    fn a_ratio_takes_its_part_of_all_ids() {
        let quarter = Sampler::parse("traceidratio", Some("0.25")).unwrap();
        let step = u64::MAX / 1000;
        let recorded = (0..1000).filter(|at| quarter.decide(None, u128::from(at * step))).count();
        assert!((249..=251).contains(&recorded), "{recorded}");
    }

    #[test]
    fn what_is_no_sampler_is_said() {
        for (name, argument) in
            [("all", None), ("traceidratio", Some("2")), ("parentbased_traceidratio", Some("x"))]
        {
            assert!(Sampler::parse(name, argument).is_err(), "{name}");
        }
    }
}
