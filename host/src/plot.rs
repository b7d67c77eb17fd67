//! Pictures of a sweep: a roofline, the ladder of kernels, speed against size.
//!
//! Each is drawn twice, for light and for dark pages, with a background of its
//! own, as SVG and as PNG. Shown are the kernels' own precisions with the cuBLAS
//! of the same; a sweep's other figures are in its tables. The font is embedded,
//! so that a machine needs none.

use crate::Error;
use crate::report::replace_file;
use crate::sweep::{Figure, Row, Sweep};
use kernels::gemm::Shape;
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use resvg::{tiny_skia, usvg};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a picture is drawn for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Theme {
    /// A light page.
    Light,
    /// A dark page.
    Dark,
}

impl Theme {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Light, Self::Dark];

    fn suffix(self) -> &'static str {
        match self {
            Self::Light => "",
            Self::Dark => "-dark",
        }
    }

    fn background(self) -> RGBColor {
        match self {
            Self::Light => RGBColor(255, 255, 255),
            Self::Dark => RGBColor(13, 17, 23),
        }
    }

    fn ink(self) -> RGBColor {
        match self {
            Self::Light => RGBColor(36, 41, 47),
            Self::Dark => RGBColor(230, 237, 243),
        }
    }

    fn grid(self) -> RGBColor {
        match self {
            Self::Light => RGBColor(225, 228, 232),
            Self::Dark => RGBColor(48, 54, 61),
        }
    }

    /// [`COLOURS`] colours that people with any colour vision tell apart, after Okabe and
    /// Ito; the yellow ones darker on white, all brighter on black.
    fn colour(self, index: usize) -> RGBColor {
        const LIGHT: [RGBColor; COLOURS] = [
            RGBColor(0, 114, 178),
            RGBColor(213, 94, 0),
            RGBColor(0, 135, 98),
            RGBColor(170, 68, 136),
            RGBColor(156, 115, 0),
            RGBColor(45, 145, 200),
            RGBColor(110, 76, 160),
        ];
        const DARK: [RGBColor; COLOURS] = [
            RGBColor(88, 166, 255),
            RGBColor(255, 140, 66),
            RGBColor(46, 204, 150),
            RGBColor(232, 140, 200),
            RGBColor(226, 184, 60),
            RGBColor(120, 205, 250),
            RGBColor(180, 150, 240),
        ];
        match self {
            Self::Light => LIGHT[index % COLOURS],
            Self::Dark => DARK[index % COLOURS],
        }
    }
}

const COLOURS: usize = 7;

/// Draws every picture that a sweep has figures for into a folder, which is
/// made where it is not there. Returns the files' paths.
///
/// # Errors
///
/// [`Error::File`] where the folder or a file cannot be written.
/// [`Error::Request`] where the sweep has no figure of a kernel on a GPU.
pub fn write(sweep: &Sweep, folder: &Path) -> Result<Vec<PathBuf>, Error> {
    type Draw = fn(&Sweep, Theme) -> Option<Result<String, String>>;
    const PICTURES: [(&str, Draw); 3] =
        [("roofline", roofline), ("ladder", ladder), ("sizes", sizes)];
    let file = |path: &Path, reason: String| Error::File {
        path: path.to_owned(),
        reason,
    };
    std::fs::create_dir_all(folder).map_err(|error| file(folder, error.to_string()))?;
    let mut written = Vec::new();
    for (name, draw) in PICTURES {
        for theme in Theme::ALL {
            let Some(drawn) = draw(sweep, theme) else {
                continue;
            };
            let path = |extension| folder.join(format!("{name}{}.{extension}", theme.suffix()));
            let (svg_path, png_path) = (path("svg"), path("png"));
            let svg = drawn.map_err(|reason| file(&svg_path, reason))?;
            let png = png(&svg).map_err(|reason| file(&png_path, reason))?;
            replace_file(&svg_path, &svg)?;
            replace_file(&png_path, &png)?;
            written.extend([svg_path, png_path]);
        }
    }
    if written.is_empty() {
        return Err(Error::Request {
            reason: "the sweep has no figure of a kernel or of cuBLAS on a GPU to draw".into(),
        });
    }
    Ok(written)
}

/// Draws the bars of one shape, for light and for dark pages: into `path`, and
/// beside it into a file whose name ends in `-dark`. SVG. Returns both paths.
///
/// # Errors
///
/// [`Error::File`] where a file cannot be written. [`Error::Request`] where the
/// sweep has no figure of a kernel at that shape on a GPU.
pub fn write_bars(sweep: &Sweep, shape: Shape, path: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut written = Vec::new();
    for theme in Theme::ALL {
        let mut name = path.file_stem().unwrap_or_default().to_owned();
        name.push(theme.suffix());
        if let Some(extension) = path.extension() {
            name.push(".");
            name.push(extension);
        }
        let path = path.with_file_name(name);
        let drawn = bars(sweep, [shape.m(), shape.n(), shape.k()], theme);
        let svg = drawn.ok_or_else(|| Error::Request {
            reason: format!("there is no figure of a kernel on a GPU at {shape} to draw"),
        })?;
        let svg = svg.map_err(|reason| Error::File {
            path: path.clone(),
            reason,
        })?;
        replace_file(&path, svg)?;
        written.push(path);
    }
    Ok(written)
}

const FONT: &str = "DejaVu Sans";
/// What a viewer falls back on.
const FONTS: &str = "DejaVu Sans, Verdana, Helvetica, Arial, sans-serif";
const WIDTH: u32 = 1000;
/// A label's height, with the space to the next.
const LINE: i32 = 16;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;

fn svg(
    height: u32,
    theme: Theme,
    draw: impl FnOnce(&Area) -> Result<(), Failure>,
) -> Result<String, String> {
    let mut text = String::new();
    {
        let area = SVGBackend::with_string(&mut text, (WIDTH, height)).into_drawing_area();
        area.fill(&theme.background())
            .map_err(|error| error.to_string())?;
        draw(&area).map_err(|error| error.to_string())?;
        area.present().map_err(|error| error.to_string())?;
    }
    Ok(text.replace(
        &format!("font-family=\"{FONT}\""),
        &format!("font-family=\"{FONTS}\""),
    ))
}

/// The SVG as PNG, at twice its size.
fn png(svg: &str) -> Result<Vec<u8>, String> {
    let mut fonts = usvg::fontdb::Database::new();
    fonts.load_font_data(dejavu::sans::regular().to_vec());
    let options = usvg::Options {
        font_family: FONT.into(),
        fontdb: Arc::new(fonts),
        ..usvg::Options::default()
    };
    let tree = usvg::Tree::from_str(svg, &options).map_err(|error| error.to_string())?;
    let size = tree.size().to_int_size();
    let mut pixels = tiny_skia::Pixmap::new(2 * size.width(), 2 * size.height())
        .ok_or_else(|| "the picture is too large".to_owned())?;
    let twice = tiny_skia::Transform::from_scale(2.0, 2.0);
    resvg::render(&tree, twice, &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| error.to_string())
}

fn text(size: f64, colour: RGBColor, horizontal: HPos, vertical: VPos) -> TextStyle<'static> {
    TextStyle {
        font: (FONT, size).into_font(),
        color: colour.to_backend_color(),
        pos: Pos::new(horizontal, vertical),
    }
}

/// The rows that pictures show: figures of the first device, in the precisions
/// that kernels have; in all there are where no kernel was measured.
fn pictured(sweep: &Sweep) -> Vec<&Row> {
    let device = sweep.devices.first().map(|device| device.ordinal);
    let measured = |row: &&Row| {
        row.device.is_some() && row.device == device && row.flops_per_second().is_some()
    };
    let rows: Vec<_> = sweep.rows.iter().filter(measured).collect();
    let mut precisions: Vec<&str> = rows
        .iter()
        .filter(|row| !is_cublas(row))
        .map(|row| row.precision.as_str())
        .collect();
    if precisions.is_empty() {
        precisions = rows.iter().map(|row| row.precision.as_str()).collect();
    }
    rows.into_iter()
        .filter(|row| precisions.contains(&row.precision.as_str()))
        .collect()
}

fn is_cublas(row: &Row) -> bool {
    row.backend == "cublas"
}

/// The kernels of some rows, in order, each once.
fn kernels_of(rows: &[&Row]) -> Vec<String> {
    let mut kernels = Vec::new();
    for row in rows {
        if !kernels.contains(&row.name()) {
            kernels.push(row.name());
        }
    }
    kernels
}

/// How a kernel is drawn. Colours come round again after seven kernels, and the
/// marks and dashes differ then.
#[derive(Clone, Copy)]
struct Style {
    colour: RGBColor,
    mark: Mark,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Circle,
    Square,
    Triangle,
}

impl Style {
    /// The style of a kernel by its place among those that have a colour; cuBLAS
    /// is in ink.
    fn of(theme: Theme, kernels: &[String], rows: &[&Row], kernel: &str) -> Self {
        let cublas = rows
            .iter()
            .any(|row| row.name() == kernel && is_cublas(row));
        if cublas {
            return Self {
                colour: theme.ink(),
                mark: Mark::Circle,
            };
        }
        let at = kernels.iter().position(|it| it == kernel).unwrap_or(0);
        Self {
            colour: theme.colour(at),
            mark: match at / COLOURS % 3 {
                0 => Mark::Circle,
                1 => Mark::Square,
                _ => Mark::Triangle,
            },
        }
    }

    /// Draws the mark at a place of the whole picture.
    fn mark(self, area: &Area, at: (i32, i32)) -> Result<(), Failure> {
        let filled = self.colour.filled();
        let (x, y) = at;
        match self.mark {
            Mark::Circle => area.draw(&Circle::new(at, 3, filled))?,
            Mark::Square => {
                area.draw(&Rectangle::new([(x - 3, y - 3), (x + 3, y + 3)], filled))?;
            }
            Mark::Triangle => area.draw(&TriangleMarker::new(at, 5, filled))?,
        }
        Ok(())
    }

    /// Draws a line through places of the whole picture.
    fn line(self, area: &Area, points: &[(i32, i32)]) -> Result<(), Failure> {
        let stroke = self.colour.stroke_width(2);
        let (dash, gap) = match self.mark {
            Mark::Circle => {
                area.draw(&PathElement::new(points.to_vec(), stroke))?;
                return Ok(());
            }
            Mark::Square => (9.0, 5.0),
            Mark::Triangle => (3.0, 4.0),
        };
        for dash in dashes(points, dash, gap) {
            area.draw(&PathElement::new(dash.to_vec(), stroke))?;
        }
        Ok(())
    }
}

/// The dashes of a broken line, their lengths and the gaps in pixels.
fn dashes(points: &[(i32, i32)], dash: f64, gap: f64) -> Vec<[(i32, i32); 2]> {
    let mut dashes = Vec::new();
    // How far the pattern has come at the start of a segment.
    let mut phase = 0.0;
    for ends in points.windows(2) {
        let [(x0, y0), (x1, y1)] = [ends[0], ends[1]];
        let (dx, dy) = (f64::from(x1 - x0), f64::from(y1 - y0));
        let length = dx.hypot(dy);
        let at = |along: f64| {
            let part = along / length;
            let (x, y) = (f64::from(x0) + part * dx, f64::from(y0) + part * dy);
            (x.round() as i32, y.round() as i32)
        };
        let mut start = -phase;
        while start < length {
            let (from, to) = (start.max(0.0), (start + dash).min(length));
            if to > from {
                dashes.push([at(from), at(to)]);
            }
            start += dash + gap;
        }
        phase = (phase + length) % (dash + gap);
    }
    dashes
}

/// A name beside the end of a line, in the line's colour.
struct Label {
    at: (i32, i32),
    text: String,
    colour: RGBColor,
    /// Drawn before the name.
    style: Option<Style>,
}

type Failure = Box<dyn std::error::Error>;

/// Writes labels to the right of `x`, moved apart where they would overlap, each
/// with a thin line from what it names.
fn draw_labels(
    area: &Area,
    theme: Theme,
    x: i32,
    (top, bottom): (i32, i32),
    mut labels: Vec<Label>,
) -> Result<(), Failure> {
    labels.sort_by_key(|label| label.at.1);
    let mut heights: Vec<i32> = labels.iter().map(|label| label.at.1).collect();
    for i in 1..heights.len() {
        heights[i] = heights[i].max(heights[i - 1] + LINE);
    }
    // What was pushed past the bottom moves up again.
    let mut limit = bottom;
    for height in heights.iter_mut().rev() {
        *height = (*height).min(limit).max(top);
        limit = *height - LINE;
    }
    for (label, height) in labels.iter().zip(heights) {
        let faint = label.colour.mix(0.45);
        let line = vec![label.at, (x + 4, height), (x + 12, height)];
        area.draw(&PathElement::new(line, faint))?;
        if let Some(style) = label.style {
            style.mark(area, (x + 18, height))?;
        }
        let style = text(13.0, mixed(label.colour, theme), HPos::Left, VPos::Center);
        area.draw(&Text::new(label.text.clone(), (x + 27, height), style))?;
    }
    Ok(())
}

/// Text wants a little more contrast than a line.
fn mixed(colour: RGBColor, theme: Theme) -> RGBColor {
    let ink = theme.ink();
    let part = |colour: u8, ink: u8| ((3 * u16::from(colour) + u16::from(ink)) / 4) as u8;
    RGBColor(
        part(colour.0, ink.0),
        part(colour.1, ink.1),
        part(colour.2, ink.2),
    )
}

fn title(area: &Area, theme: Theme, sweep: &Sweep, main: &str, rest: &str) -> Result<(), Failure> {
    let device = sweep
        .devices
        .first()
        .map_or("", |device| device.name.as_str());
    let ink = theme.ink();
    let main = format!("{main}, {device}");
    area.draw(&Text::new(
        main,
        (24, 18),
        text(21.0, ink, HPos::Left, VPos::Top),
    ))?;
    let style = text(14.0, ink, HPos::Left, VPos::Top);
    area.draw(&Text::new(rest.to_owned(), (24, 46), style))?;
    Ok(())
}

fn height_for(labels: usize) -> u32 {
    620.max(150 + LINE as u32 * labels as u32)
}

/// Measured points under the device's ceilings: FLOP/s against FLOPs for each
/// byte that must move.
fn roofline(sweep: &Sweep, theme: Theme) -> Option<Result<String, String>> {
    let device = sweep.devices.first()?;
    // With a warm L2, small products need no memory and pass the roof.
    let rate = |row: &Row| {
        let seconds = row.samples(Figure::Cold)?.median();
        (seconds > 0.0).then(|| row.flops / seconds)
    };
    let rows: Vec<_> = pictured(sweep)
        .into_iter()
        .filter(|row| row.bytes > 0.0 && rate(row).is_some())
        .collect();
    let points: Vec<(String, f64, f64)> = rows
        .iter()
        .filter_map(|row| Some((row.name(), row.flops / row.bytes, rate(row)? / 1e12)))
        .collect();
    if points.is_empty() {
        return None;
    }
    let kernels = kernels_of(&rows);
    let mut ceilings: Vec<(String, f64)> = Vec::new();
    for row in &rows {
        let name = format!("{} peak", row.precision);
        if let Some(peak) = row.peak_flops
            && !ceilings.iter().any(|(it, _)| *it == name)
        {
            ceilings.push((name, peak / 1e12));
        }
    }
    let highest_roof = ceilings.iter().map(|(_, peak)| *peak).fold(0.0, f64::max);
    let bandwidth = device.peak_bandwidth / 1e12;
    let least = |values: &mut dyn Iterator<Item = f64>| values.fold(f64::INFINITY, f64::min);
    let most = |values: &mut dyn Iterator<Item = f64>| values.fold(0.0, f64::max);
    let x_from = least(&mut points.iter().map(|point| point.1)).min(1.0) / 2.0;
    let x_to = most(&mut points.iter().map(|point| point.1)).max(highest_roof / bandwidth) * 2.0;
    let y_from = least(&mut points.iter().map(|point| point.2)) / 2.0;
    let y_to = most(&mut points.iter().map(|point| point.2)).max(highest_roof) * 1.6;

    let height = height_for(kernels.len() + ceilings.len() + 1);
    Some(svg(height, theme, |area| {
        title(
            area,
            theme,
            sweep,
            "Roofline",
            "L2 cold; each point is a shape, each kernel labelled at its most intense one; \
             dashed: the device's ceilings at its highest clocks",
        )?;
        let (plot, _) = area.split_horizontally(WIDTH as i32 - 190);
        let mut chart = ChartBuilder::on(&plot)
            .margin_top(74)
            .margin_right(10)
            .margin_bottom(12)
            .margin_left(16)
            .x_label_area_size(52)
            .y_label_area_size(74)
            .build_cartesian_2d((x_from..x_to).log_scale(), (y_from..y_to).log_scale())?;
        chart
            .configure_mesh()
            .axis_style(theme.ink().mix(0.6))
            .bold_line_style(theme.grid())
            .light_line_style(theme.grid().mix(0.35))
            .label_style(text(13.0, theme.ink(), HPos::Left, VPos::Top))
            .axis_desc_style(text(14.0, theme.ink(), HPos::Center, VPos::Top))
            .x_desc("FLOPs for each byte that must move")
            .y_desc("TFLOP/s")
            .x_label_formatter(&|value| plain(*value))
            .y_label_formatter(&|value| plain(*value))
            .draw()?;
        let mut labels = Vec::new();
        let ink = theme.ink();
        let ridge = highest_roof / bandwidth;
        let slope = [(x_from, x_from * bandwidth), (ridge, highest_roof)];
        let dashed =
            |points: Vec<(f64, f64)>| DashedLineSeries::new(points, 7, 5, ink.stroke_width(2));
        // The part of the slope that the picture's lower edge leaves.
        let slope_from = if slope[0].1 < y_from {
            (y_from / bandwidth, y_from)
        } else {
            slope[0]
        };
        chart.draw_series(dashed(vec![slope_from, slope[1]]))?;
        let middle = (
            (slope_from.0 * ridge).sqrt(),
            (slope_from.1 * highest_roof).sqrt(),
        );
        let (x, y) = chart.backend_coord(&middle);
        let name = format!("memory {bandwidth:.2} TB/s");
        area.draw(&Text::new(
            name,
            (x - 8, y - 8),
            text(13.0, ink, HPos::Right, VPos::Bottom),
        ))?;
        for (name, peak) in &ceilings {
            chart.draw_series(dashed(vec![(peak / bandwidth, *peak), (x_to, *peak)]))?;
            labels.push(Label {
                at: chart.backend_coord(&(x_to, *peak)),
                text: format!("{name} {peak:.1}"),
                colour: ink,
                style: None,
            });
        }
        for kernel in &kernels {
            let style = Style::of(theme, &kernels, &rows, kernel);
            let of = || points.iter().filter(|point| point.0 == *kernel);
            for (_, x, y) in of() {
                style.mark(area, chart.backend_coord(&(*x, *y)))?;
            }
            let most_intense = of().max_by(|one, other| one.1.total_cmp(&other.1));
            if let Some((_, x, y)) = most_intense {
                labels.push(Label {
                    at: chart.backend_coord(&(*x, *y)),
                    text: kernel.clone(),
                    colour: style.colour,
                    style: Some(style),
                });
            }
        }
        draw_labels(
            area,
            theme,
            WIDTH as i32 - 192,
            (84, height as i32 - 60),
            labels,
        )
    }))
}

/// A number without the exponent that log scales bring.
fn plain(value: f64) -> String {
    if value >= 1.0 {
        format!("{value:.0}")
    } else {
        let digits = (-value.log10()).ceil().max(0.0) as usize;
        format!("{value:.digits$}")
    }
}

/// The shape that most kernels have a figure for: the largest of them, and a
/// square where one is among them.
fn shape_of_the_ladder(rows: &[&Row]) -> Option<[u32; 3]> {
    let count = |row: &&&Row| {
        let same = |it: &&&Row| [it.m, it.n, it.k] == [row.m, row.n, row.k];
        rows.iter().filter(same).count()
    };
    rows.iter()
        .max_by(|one, other| {
            let key = |row: &&&Row| (count(row), row.is_square());
            key(one)
                .cmp(&key(other))
                .then(one.flops.total_cmp(&other.flops))
        })
        .map(|row| [row.m, row.n, row.k])
}

/// Every kernel, at the shape that most have a figure for, as bars.
fn ladder(sweep: &Sweep, theme: Theme) -> Option<Result<String, String>> {
    let shape = shape_of_the_ladder(&pictured(sweep))?;
    bars(sweep, shape, theme)
}

/// Every kernel at one shape, as bars, with a line at cuBLAS's rate.
fn bars(sweep: &Sweep, shape: [u32; 3], theme: Theme) -> Option<Result<String, String>> {
    let mut rows = pictured(sweep);
    rows.retain(|row| [row.m, row.n, row.k] == shape);
    if rows.is_empty() {
        return None;
    }
    let rate = |row: &Row| row.flops_per_second().unwrap_or(0.0) / 1e12;
    let most = rows.iter().map(|row| rate(row)).fold(0.0, f64::max);
    let bar = 26;
    let height = 100 + bar * rows.len() as i32;
    let [m, n, k] = shape;
    Some(svg(height as u32, theme, |area| {
        title(
            area,
            theme,
            sweep,
            &format!("{m}×{n}×{k}"),
            match rows.iter().any(|row| is_cublas(row)) {
                true => "TFLOP/s; in brackets the share of cuBLAS at the same precision",
                false => "TFLOP/s",
            },
        )?;
        let names = rows.iter().map(|row| row.name().chars().count()).max();
        let left = 40 + 8 * names.unwrap_or(0) as i32;
        let right = WIDTH as i32 - 160;
        let length = |row: &Row| (f64::from(right - left) * rate(row) / most) as i32;
        let line = rows.iter().find(|row| is_cublas(row));
        if let Some(cublas) = line {
            let x = left + length(cublas);
            let points = [(x, 76), (x, height - 20)];
            for dash in dashes(&points, 5.0, 4.0) {
                area.draw(&PathElement::new(dash.to_vec(), theme.ink().mix(0.6)))?;
            }
        }
        for (i, row) in rows.iter().enumerate() {
            let (top, bottom) = (80 + bar * i as i32, 80 + bar * (i as i32 + 1) - 7);
            let middle = i32::midpoint(top, bottom);
            let colour = if is_cublas(row) {
                theme.ink()
            } else {
                theme.colour(0)
            };
            let end = left + length(row).max(1);
            area.draw(&Rectangle::new(
                [(left, top), (end, bottom)],
                colour.filled(),
            ))?;
            let name = text(14.0, theme.ink(), HPos::Right, VPos::Center);
            area.draw(&Text::new(row.name(), (left - 8, middle), name))?;
            let value = match sweep.speed_up_over_cublas(row) {
                Some(share) if !is_cublas(row) => {
                    format!("{} ({:.0} %)", figures(rate(row)), 100.0 * share)
                }
                _ => figures(rate(row)),
            };
            // Where cuBLAS's line would run through the figures, they interrupt it.
            let width = (7 * value.chars().count()) as i32;
            area.draw(&Rectangle::new(
                [(end + 5, top), (end + 11 + width, bottom)],
                theme.background().filled(),
            ))?;
            let style = text(14.0, theme.ink(), HPos::Left, VPos::Center);
            area.draw(&Text::new(value, (end + 8, middle), style))?;
        }
        Ok(())
    }))
}

/// Three figures.
fn figures(value: f64) -> String {
    let digits = (2 - value.max(1e-6).log10().floor() as i32).clamp(0, 6) as usize;
    format!("{value:.digits$}")
}

/// What a size must be a multiple of for a line to go through it: the width of
/// the smallest tiles. One where fewer than two sizes are, and the line goes
/// through all.
fn step_of_lines(sizes: &[u32]) -> u32 {
    const STEP: u32 = 64;
    let regular = sizes.iter().filter(|size| **size % STEP == 0).count();
    if regular < 2 { 1 } else { STEP }
}

/// The sizes that are written below a logarithmic axis of `width` pixels, so
/// that no two touch: those that `step` divides first, and of these the ends.
fn ticks(sizes: &[u32], step: u32, width: f64) -> Vec<u32> {
    /// Of a digit, and between two numbers.
    const DIGIT: f64 = 8.5;
    const GAP: f64 = 10.0;
    let [Some(&first), Some(&last)] = [sizes.first(), sizes.last()] else {
        return Vec::new();
    };
    let span = (f64::from(last) / f64::from(first)).log2();
    let middle = |size: u32| width * (f64::from(size) / f64::from(first)).log2() / span;
    let half = |size: u32| DIGIT * size.to_string().len() as f64 / 2.0;
    let mut order = sizes.to_vec();
    order.sort_by_key(|&size| {
        let end = size == first || size == last;
        (size % step != 0, !end, size)
    });
    let mut chosen: Vec<u32> = Vec::new();
    for size in order {
        let apart = |other: &u32| {
            let distance = (middle(size) - middle(*other)).abs();
            distance >= half(size) + half(*other) + GAP
        };
        if chosen.iter().all(apart) {
            chosen.push(size);
        }
    }
    chosen.sort_unstable();
    chosen
}

/// FLOP/s of square products against their size: lines through the sizes that
/// suit tiles, and rings at the others.
fn sizes(sweep: &Sweep, theme: Theme) -> Option<Result<String, String>> {
    let rows: Vec<_> = pictured(sweep)
        .into_iter()
        .filter(|row| row.is_square())
        .collect();
    let mut sizes: Vec<u32> = rows.iter().map(|row| row.n).collect();
    sizes.sort_unstable();
    sizes.dedup();
    // One size is no line.
    let (&first, &last) = (sizes.first()?, sizes.last()?);
    if first == last {
        return None;
    }
    let step = step_of_lines(&sizes);
    let kernels = kernels_of(&rows);
    let rate = |row: &Row| row.flops_per_second().unwrap_or(0.0) / 1e12;
    let most = rows.iter().map(|row| rate(row)).fold(0.0, f64::max);
    let height = height_for(kernels.len());
    let (left, right) = (16 + 64, WIDTH as i32 - 200);
    let below = ticks(&sizes, step, f64::from(right - left));
    Some(svg(height, theme, |area| {
        title(
            area,
            theme,
            sweep,
            "Square products",
            &match sizes.iter().any(|size| size % step != 0) {
                true => format!(
                    "TFLOP/s against M = N = K; lines through multiples of {step}, rings at other sizes"
                ),
                false => "TFLOP/s against M = N = K".into(),
            },
        )?;
        let (plot, _) = area.split_horizontally(WIDTH as i32 - 190);
        let mut chart = ChartBuilder::on(&plot)
            .margin_top(74)
            .margin_right(10)
            .margin_bottom(12)
            .margin_left(16)
            .x_label_area_size(52)
            .y_label_area_size(64)
            .build_cartesian_2d(
                (f64::from(first)..f64::from(last))
                    .log_scale()
                    .base(2.0)
                    .with_key_points(below.iter().copied().map(f64::from).collect()),
                0.0..most * 1.05,
            )?;
        chart
            .configure_mesh()
            .axis_style(theme.ink().mix(0.6))
            .bold_line_style(theme.grid())
            .light_line_style(theme.grid().mix(0.0))
            .label_style(text(13.0, theme.ink(), HPos::Left, VPos::Top))
            .axis_desc_style(text(14.0, theme.ink(), HPos::Center, VPos::Top))
            .x_desc("M = N = K")
            .y_desc("TFLOP/s")
            .x_label_formatter(&|value| format!("{value:.0}"))
            .y_label_formatter(&|value| format!("{value:.0}"))
            .draw()?;
        let mut labels = Vec::new();
        for kernel in &kernels {
            let style = Style::of(theme, &kernels, &rows, kernel);
            let of_kernel = rows.iter().filter(|row| row.name() == *kernel);
            let mut points: Vec<_> = of_kernel
                .map(|row| (row.n, chart.backend_coord(&(f64::from(row.n), rate(row)))))
                .collect();
            points.sort_unstable();
            let (regular, others): (Vec<_>, Vec<_>) =
                points.iter().partition(|(size, _)| size % step == 0);
            if let Some((_, end)) = regular.last().or(others.last()) {
                labels.push(Label {
                    at: *end,
                    text: kernel.clone(),
                    colour: style.colour,
                    style: Some(style),
                });
            }
            let line: Vec<_> = regular.iter().map(|(_, at)| *at).collect();
            style.line(area, &line)?;
            for (_, at) in regular {
                style.mark(area, at)?;
            }
            for (_, at) in others {
                area.draw(&Circle::new(at, 3, theme.background().filled()))?;
                area.draw(&Circle::new(at, 3, style.colour.stroke_width(1)))?;
            }
        }
        draw_labels(
            area,
            theme,
            WIDTH as i32 - 192,
            (84, height as i32 - 60),
            labels,
        )
    }))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::compare::tests::sweep;
    use crate::sweep::{DeviceRecord, Samples};

    pub(crate) fn device() -> DeviceRecord {
        DeviceRecord {
            ordinal: 0,
            name: "Test GPU".into(),
            uuid: "GPU-0".into(),
            compute_capability: "9.0".into(),
            multiprocessors: 132,
            clock_mhz: 1980,
            memory_clock_mhz: 3201,
            memory_bytes: 1 << 37,
            l2_bytes: 60 << 20,
            ecc: true,
            peak_f32_flops: 66.9e12,
            peak_bandwidth: 4.9e12,
            driver: None,
            cuda: "13.0".into(),
            ptx: "sm_90a".into(),
            power_limit_watts: None,
            nvml_absent: None,
            cublas: None,
            cublas_absent: None,
        }
    }

    /// Several kernels at two sizes, one at cuBLAS's place, one of a precision
    /// that no kernel has.
    fn measured() -> Sweep {
        let mut sweep = sweep(&[
            ("naive_16", &[1e-7]),
            ("tiled_16", &[9e-8]),
            ("cublas_f32", &[2e-8]),
            ("cublas_bf16", &[1e-8]),
        ]);
        sweep.devices.push(device());
        for row in &mut sweep.rows {
            row.cold = row.sustained.clone();
            if row.kernel.starts_with("cublas") {
                row.backend = "cublas".into();
            }
        }
        sweep.rows[3].precision = "bf16".into();
        let mut larger = sweep.rows.clone();
        for row in &mut larger {
            (row.m, row.n, row.k) = (256, 256, 256);
            row.flops *= 64.0;
            row.bytes *= 16.0;
            let seconds = row.seconds().unwrap() * 10.0;
            row.sustained = Some(Samples {
                seconds: vec![seconds],
                launches: 1,
            });
        }
        sweep.rows.extend(larger);
        sweep
    }

    #[test]
    fn every_picture_names_its_kernels() {
        let sweep = measured();
        for theme in Theme::ALL {
            for draw in [roofline, ladder, sizes] {
                let svg = draw(&sweep, theme).unwrap().unwrap();
                for kernel in ["naive_16", "tiled_16", "cublas_f32"] {
                    assert!(svg.contains(kernel), "{kernel}");
                }
                assert!(svg.contains("Test GPU") && !svg.contains("cublas_bf16"));
                assert!(png(&svg).unwrap().starts_with(b"\x89PNG"));
            }
        }
        assert!(
            ladder(&sweep, Theme::Light)
                .unwrap()
                .unwrap()
                .contains("256×256×256")
        );
    }

    #[test]
    fn no_two_ticks_touch() {
        let squares = [256, 512, 1000, 1024, 2048, 4095, 4096, 4097, 8192];
        let step = step_of_lines(&squares);
        assert_eq!(step, 64);
        let below = ticks(&squares, step, 720.0);
        assert_eq!(below, [256, 512, 1024, 2048, 4096, 8192]);
        // Nothing but odd sizes: as many as fit, and both ends.
        let odd: Vec<u32> = (0..50).map(|i| 1001 + 20 * i).collect();
        let below = ticks(&odd, step_of_lines(&odd), 720.0);
        assert!((8..=20).contains(&below.len()), "{below:?}");
        assert_eq!((below.first(), below.last()), (odd.first(), odd.last()));
        // Four digits, and the end of the one is not the start of the next.
        let at = |size: u32| 720.0 * (f64::from(size) / 1001.0).ln() / (1981.0_f64 / 1001.0).ln();
        for pair in below.windows(2) {
            assert!(at(pair[1]) - at(pair[0]) > 4.0 * 8.5, "{pair:?}");
        }
        assert_eq!(ticks(&[], 1, 720.0), [0; 0]);
    }

    #[test]
    fn dashes_go_on_around_a_corner() {
        let found = dashes(&[(0, 0), (10, 0), (10, 10)], 6.0, 2.0);
        let expected = [
            [(0, 0), (6, 0)],
            [(8, 0), (10, 0)],
            [(10, 0), (10, 4)],
            [(10, 6), (10, 10)],
        ];
        assert_eq!(found, expected);
        assert_eq!(dashes(&[(3, 3), (3, 3)], 6.0, 2.0), [[(0, 0); 2]; 0]);
    }

    #[test]
    fn letters_are_drawn_without_a_font_of_the_machine() {
        let draw = |word: &str| {
            let svg = svg(100, Theme::Light, |area| {
                let style = text(40.0, BLACK, HPos::Left, VPos::Top);
                area.draw(&Text::new(word.to_owned(), (10, 10), style))?;
                Ok(())
            });
            png(&svg.unwrap()).unwrap()
        };
        assert_ne!(draw("M"), draw(" "));
    }

    #[test]
    fn what_has_no_figures_has_no_picture() {
        let mut sweep = measured();
        sweep.rows.retain(|row| row.n == 64);
        assert!(sizes(&sweep, Theme::Light).is_none());
        assert!(ladder(&sweep, Theme::Light).is_some());
        sweep.rows.iter_mut().for_each(|row| row.device = None);
        let folder = std::env::temp_dir().join(format!("plot-{}", std::process::id()));
        let error = write(&sweep, &folder).unwrap_err();
        assert!(error.is_usage(), "{error}");
        std::fs::remove_dir(&folder).unwrap();
    }
}
