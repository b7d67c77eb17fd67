//! Pictures of a sweep: a roofline, the ladder of kernels, speed against size.
//!
//! Each is drawn twice, for light and for dark pages, with a background of its
//! own, as SVG and as PNG. Shown are the kernels' own precisions with the cuBLAS
//! of the same; a sweep's other figures are in its tables. The font is embedded,
//! so that a machine needs none.

use crate::Error;
use crate::report::replace_file;
use crate::sweep::{Figure, Row, Sweep};
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

    /// Colours that people with any colour vision tell apart, after Okabe and
    /// Ito; the yellow ones darker on white, all brighter on black.
    fn colour(self, index: usize) -> RGBColor {
        const LIGHT: [RGBColor; 7] = [
            RGBColor(0, 114, 178),
            RGBColor(213, 94, 0),
            RGBColor(0, 135, 98),
            RGBColor(170, 68, 136),
            RGBColor(156, 115, 0),
            RGBColor(45, 145, 200),
            RGBColor(110, 76, 160),
        ];
        const DARK: [RGBColor; 7] = [
            RGBColor(88, 166, 255),
            RGBColor(255, 140, 66),
            RGBColor(46, 204, 150),
            RGBColor(232, 140, 200),
            RGBColor(226, 184, 60),
            RGBColor(120, 205, 250),
            RGBColor(180, 150, 240),
        ];
        match self {
            Self::Light => LIGHT[index % LIGHT.len()],
            Self::Dark => DARK[index % DARK.len()],
        }
    }
}

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
    draw: impl FnOnce(&Area) -> Result<(), Box<dyn std::error::Error>>,
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

/// A name beside the end of a line, in the line's colour.
struct Label {
    at: (i32, i32),
    text: String,
    colour: RGBColor,
}

/// Writes labels to the right of `x`, moved apart where they would overlap, each
/// with a thin line from what it names.
fn draw_labels(
    area: &Area,
    theme: Theme,
    x: i32,
    (top, bottom): (i32, i32),
    mut labels: Vec<Label>,
) -> Result<(), Box<dyn std::error::Error>> {
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
        let style = text(13.0, mixed(label.colour, theme), HPos::Left, VPos::Center);
        area.draw(&Text::new(label.text.clone(), (x + 16, height), style))?;
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

/// Where a kernel stands among those that have a colour; cuBLAS is in ink.
fn colour_of(theme: Theme, kernels: &[String], rows: &[&Row], kernel: &str) -> RGBColor {
    let cublas = rows
        .iter()
        .any(|row| row.name() == kernel && is_cublas(row));
    if cublas {
        return theme.ink();
    }
    let at = kernels.iter().position(|it| it == kernel).unwrap_or(0);
    theme.colour(at)
}

fn title(
    area: &Area,
    theme: Theme,
    sweep: &Sweep,
    main: &str,
    rest: &str,
) -> Result<(), Box<dyn std::error::Error>> {
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
            });
        }
        for kernel in &kernels {
            let colour = colour_of(theme, &kernels, &rows, kernel);
            let of = || points.iter().filter(|point| point.0 == *kernel);
            chart.draw_series(of().map(|(_, x, y)| Circle::new((*x, *y), 4, colour.filled())))?;
            let most_intense = of().max_by(|one, other| one.1.total_cmp(&other.1));
            if let Some((_, x, y)) = most_intense {
                labels.push(Label {
                    at: chart.backend_coord(&(*x, *y)),
                    text: kernel.clone(),
                    colour,
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

/// Every kernel at one shape, as bars.
fn ladder(sweep: &Sweep, theme: Theme) -> Option<Result<String, String>> {
    let rows = pictured(sweep);
    let shape = shape_of_the_ladder(&rows)?;
    let here = |row: &&&Row| [row.m, row.n, row.k] == shape;
    let rows: Vec<_> = rows.iter().filter(here).copied().collect();
    let kernels = kernels_of(&rows);
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
            "TFLOP/s; in brackets the share of cuBLAS at the same precision",
        )?;
        let names = rows.iter().map(|row| row.name().chars().count()).max();
        let left = 40 + 8 * names.unwrap_or(0) as i32;
        let right = WIDTH as i32 - 160;
        let length = |row: &Row| (f64::from(right - left) * rate(row) / most) as i32;
        for (i, row) in rows.iter().enumerate() {
            let (top, bottom) = (80 + bar * i as i32, 80 + bar * (i as i32 + 1) - 7);
            let middle = i32::midpoint(top, bottom);
            let colour = colour_of(theme, &kernels, &rows, &row.name());
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

/// FLOP/s of square products against their size, as lines.
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
    let kernels = kernels_of(&rows);
    let rate = |row: &Row| row.flops_per_second().unwrap_or(0.0) / 1e12;
    let most = rows.iter().map(|row| rate(row)).fold(0.0, f64::max);
    let height = height_for(kernels.len());
    Some(svg(height, theme, |area| {
        title(
            area,
            theme,
            sweep,
            "Square products",
            "TFLOP/s against M = N = K",
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
                    .with_key_points(sizes.iter().copied().map(f64::from).collect()),
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
            let colour = colour_of(theme, &kernels, &rows, kernel);
            let mut points: Vec<_> = rows
                .iter()
                .filter(|row| row.name() == *kernel)
                .map(|row| (f64::from(row.n), rate(row)))
                .collect();
            points.sort_by(|one, other| one.0.total_cmp(&other.0));
            if let Some(end) = points.last() {
                labels.push(Label {
                    at: chart.backend_coord(end),
                    text: kernel.clone(),
                    colour,
                });
            }
            chart.draw_series(LineSeries::new(points.clone(), colour.stroke_width(2)))?;
            chart.draw_series(
                points
                    .into_iter()
                    .map(|point| Circle::new(point, 3, colour.filled())),
            )?;
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
mod tests {
    use super::*;
    use crate::compare::tests::sweep;
    use crate::sweep::{DeviceRecord, Samples};

    fn device() -> DeviceRecord {
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
