//! Received metrics.

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::metrics::v1::{HistogramDataPoint, NumberDataPoint};

use super::span::texts;

/// A metric of one process, with its values at the time it was sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// Its name.
    pub name: String,
    /// Its unit.
    pub unit: String,
    /// The attributes of the process that sent it.
    pub resource: BTreeMap<String, String>,
    /// One per set of labels.
    pub points: Vec<Point>,
}

/// A metric's value for one set of labels.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The labels.
    pub labels: BTreeMap<String, String>,
    /// The value; a histogram's sum.
    pub value: f64,
    /// How many values a histogram holds.
    pub count: Option<u64>,
}

pub(super) fn read(request: &ExportMetricsServiceRequest) -> Vec<Metric> {
    let mut metrics = Vec::new();
    for from_process in &request.resource_metrics {
        let resource = from_process.resource.as_ref().map(|resource| texts(&resource.attributes));
        for metric in from_process.scope_metrics.iter().flat_map(|scope| &scope.metrics) {
            let points = match &metric.data {
                Some(Data::Gauge(gauge)) => gauge.data_points.iter().map(number).collect(),
                Some(Data::Sum(sum)) => sum.data_points.iter().map(number).collect(),
                Some(Data::Histogram(data)) => data.data_points.iter().map(histogram).collect(),
                _ => Vec::new(),
            };
            metrics.push(Metric {
                name: metric.name.clone(),
                unit: metric.unit.clone(),
                resource: resource.clone().unwrap_or_default(),
                points,
            });
        }
    }
    metrics
}

#[expect(clippy::cast_precision_loss, reason = "counts of tests are small")]
fn number(point: &NumberDataPoint) -> Point {
    let value = match point.value {
        Some(Value::AsDouble(value)) => value,
        Some(Value::AsInt(value)) => value as f64,
        None => f64::NAN,
    };
    Point { labels: texts(&point.attributes), value, count: None }
}

fn histogram(point: &HistogramDataPoint) -> Point {
    let labels = texts(&point.attributes);
    Point { labels, value: point.sum.unwrap_or(f64::NAN), count: Some(point.count) }
}
