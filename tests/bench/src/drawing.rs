//! What both plots are drawn with: a self-contained SVG. A dark colour scheme gets other colours.

use std::fmt::Write as _;

const STYLE: &str = "
text { font: 13px system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #24292f }
.title { font-size: 17px; font-weight: 600 }
.panel { font-size: 14px; font-weight: 600 }
.small { font-size: 11px }
.quiet { fill: #57606a }
.paper { fill: #ffffff }
.grid { stroke: #d0d7de; stroke-width: 1 }
.raw { fill: #b3bcc8; stroke: #b3bcc8 } .bare { fill: #7a8899; stroke: #7a8899 }
.claim { fill: #1a7f64; stroke: #1a7f64 } .attached { fill: #d98a2b; stroke: #d98a2b }
.nomad { stroke: #cf222e; fill: #cf222e; stroke-width: 2.5 }
rect { stroke: none } .whisker, .trend { stroke-width: 2 }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .quiet { fill: #9198a1 } .paper { fill: #0d1117 } .grid { stroke: #30363d }
.raw { fill: #5d6773; stroke: #5d6773 } .bare { fill: #8f9baa; stroke: #8f9baa }
.claim { fill: #3fb68f; stroke: #3fb68f } .attached { fill: #e3a04c; stroke: #e3a04c }
.nomad { stroke: #ff7b72; fill: #ff7b72 }
}";

/// A picture under way.
pub struct Drawing {
    svg: String,
    /// Width and height.
    size: (f64, f64),
}

impl Drawing {
    /// A paper of this width and height, with a title and what the picture shows in words.
    pub fn new(size: (f64, f64), title: &str, label: &str) -> Self {
        let (width, height) = size;
        let mut drawing = Self { svg: String::new(), size };
        drawing.put(format_args!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
             width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{label}\">\n\
             <style>{STYLE}\n</style>\n\
             <rect class=\"paper\" width=\"{width}\" height=\"{height}\" rx=\"8\"/>"
        ));
        drawing.text(24.0, 34.0, "title", "start", title);
        drawing
    }

    /// The picture, with a line of words at the bottom.
    pub fn finished(mut self, words: &str) -> String {
        let (width, height) = self.size;
        self.text(width / 2.0, height - 14.0, "small quiet", "middle", words);
        self.svg.push_str("</svg>\n");
        self.svg
    }

    pub fn put(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.svg, "{element}");
    }

    pub fn text(&mut self, x: f64, y: f64, class: &str, anchor: &str, text: &str) {
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" class=\"{class}\" \
             text-anchor=\"{anchor}\">{text}</text>"
        ));
    }

    pub fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str) {
        self.put(format_args!(
            "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" class=\"{class}\"/>"
        ));
    }
}
