/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drawings as SVG inside the HTML, coloured by classes of its style, so that they follow the light
 * or dark scheme of the browser. Times have a logarithmic scale: equal distances are equal ratios.
 */
#include <math.h>

#include "client/ctl/report.h"

/* The size of a drawing. On a narrow screen a unit is about a pixel, so that text of 11 units stays
 * readable. */
enum { WIDTH = 380, HEIGHT = 250, LEFT = 52, RIGHT = 8, TOP = 14, TILE_NAMES = 58, BOTTOM = 24 };
enum { FAILED_BAND = 16 }; /* above the times: trials without a time */

static void svg_begin(struct page *p, const char *title, int height)
{
    page_print(p,
               "<figure><figcaption>%s</figcaption><svg class=\"plot\" viewBox=\"0 0 %d %d\" "
               "role=\"img\" aria-label=\"%s\">",
               title, WIDTH, height, title);
}

/* ---- bars ------------------------------------------------------------------------------------ */

void svg_print_bar(struct page *p, double percent)
{
    const double width = percent < 0 ? 0 : percent > 100 ? 100 : percent;
    page_print(p,
               "<svg class=\"bar\" viewBox=\"0 0 100 10\" preserveAspectRatio=\"none\" "
               "aria-hidden=\"true\"><rect class=\"track\" width=\"100\" height=\"10\"/><rect "
               "class=\"fill\" width=\"%.1f\" height=\"10\"/></svg>",
               width);
}

void svg_print_histogram(struct page *p, const char *title, const char *const labels[],
                         const size_t counts[], size_t n)
{
    enum { TALL = 150, GROUND = TALL - 20, HIGHEST = GROUND - 18 };
    size_t most = 1;
    for (size_t i = 0; i < n; i++) {
        most = counts[i] > most ? counts[i] : most;
    }
    svg_begin(p, title, TALL);
    const double step = (double)WIDTH / (double)n;
    for (size_t i = 0; i < n; i++) {
        const double height = HIGHEST * (double)counts[i] / (double)most, x = step * (double)i;
        page_print(p, "<rect class=\"fill\" x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"/>",
                   x + 2, GROUND - height, step - 4, height);
        page_print(p, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>", x + step / 2,
                   TALL - 6, labels[i]);
        if (counts[i] > 0) {
            page_print(p, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"middle\">%zu</text>",
                       x + step / 2, GROUND - height - 4, counts[i]);
        }
    }
    page_print(p, "<line class=\"axis\" x1=\"0\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/></svg></figure>\n",
               GROUND, WIDTH, GROUND);
}

/* ---- the scale of times ---------------------------------------------------------------------- */

struct scale {
    double least, most; /* us */
    double bottom, top; /* y */
};

static double scale_at(const struct scale *s, double us)
{
    return s->bottom - (s->bottom - s->top) * log(us / s->least) / log(s->most / s->least);
}

static struct scale scale_make(const struct drawing *d, double bottom)
{
    struct scale s = {INFINITY, 0, bottom, TOP + FAILED_BAND};
    const double others[] = {d->reference_us, d->floor_us};
    for (size_t i = 0; i < d->n + COUNT(others); i++) {
        const double us = i < d->n ? d->dots[i].us : others[i - d->n];
        if (us > 0) {
            s.least = us < s.least ? us : s.least;
            s.most = us > s.most ? us : s.most;
        }
    }
    s.least = isfinite(s.least) ? s.least / 1.04 : 1;
    s.most = s.most > 0 ? s.most * 1.04 : 10;
    return s;
}

/* The next number above `us` that the axis shows: of 1, 2, 5, 10 ... on a wide scale, the multiples
 * of a step on a narrow scale. `us` 0: the first number. */
static double scale_next(const struct scale *s, double us)
{
    const bool is_wide = s->most / s->least > 6;
    const double part = (s->most - s->least) / 6;
    const double ten = pow(10, floor(log10(is_wide ? s->least : part)));
    const double step = ten * (part > 5 * ten ? 10 : part > 2 * ten ? 5 : part > ten ? 2 : 1);
    if (!is_wide) {
        return us > 0 ? us + step : ceil(s->least / step) * step;
    }
    const double steps[] = {1, 2, 5, 10};
    const double base = us > 0 ? pow(10, floor(log10(us * 1.001))) : ten;
    for (size_t i = 0; i < COUNT(steps); i++) {
        const double next = base * steps[i];
        if (next > us * 1.001 && next >= s->least) {
            return next;
        }
    }
    return base * 20; /* us 0, and the scale begins between 5 and 10 of its decade */
}

static void scale_print(struct page *p, const struct scale *s)
{
    for (double us = scale_next(s, 0); us <= s->most; us = scale_next(s, us)) {
        const double y = scale_at(s, us);
        page_print(p,
                   "<line class=\"axis\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/><text "
                   "x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.*f</text>",
                   LEFT, y, WIDTH - RIGHT, y, LEFT - 5, y + 4,
                   us >= 10  ? 0
                   : us >= 1 ? 1
                             : 2,
                   us);
    }
    page_print(p, "<text x=\"2\" y=\"%d\">us</text>", TOP - 3);
}

/* A horizontal line with its name at the right end. */
static void svg_print_level(struct page *p, const struct scale *s, double us, const char *class,
                            const char *name)
{
    if (us > 0) {
        const double y = scale_at(s, us);
        page_print(p,
                   "<line class=\"%s\" x1=\"%d\" y1=\"%.1f\" x2=\"%d\" y2=\"%.1f\"/><text "
                   "class=\"%sname\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%s</text>",
                   class, LEFT, y, WIDTH - RIGHT, y, class, WIDTH - RIGHT - 2, y - 3, name);
    }
}

/* ---- dots ------------------------------------------------------------------------------------ */

static void svg_print_cross(struct page *p, double x, const char *config, const char *failure)
{
    const double y = TOP + FAILED_BAND / 4.0;
    page_print(p, "<path class=\"bad\" d=\"M%.1f %.1fl5 5m-5 0l5 -5\"><title>%s; %s</title></path>",
               x - 2.5, y - 2.5, failure, config);
}

/* Trials that were cut short are hollow. `titled`: the config shows when the mouse rests there. */
static void svg_print_dot(struct page *p, const struct dot *dot, double x, double y, bool titled)
{
    const char *class = !dot->is_ok ? "cut" : dot->is_final ? "final" : "ok";
    page_print(p, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\"", class, x, y);
    if (titled) {
        page_print(p, "><title>%.*f us: %s</title></circle>", show_decimals(dot->us), dot->us,
                   dot->config);
    } else {
        page_print(p, "/>");
    }
    if (dot->is_winner) {
        page_print(p, "<circle class=\"winner\" cx=\"%.1f\" cy=\"%.1f\" r=\"6\"/>", x, y);
    }
}

static void svg_end(struct page *p, const struct scale *s, const struct drawing *d)
{
    svg_print_level(p, s, d->floor_us, "floor", "floor");
    svg_print_level(p, s, d->reference_us, "ref", "reference");
    page_print(p, "</svg></figure>\n");
}

/* ---- time against tile ----------------------------------------------------------------------- */

static void svg_print_tile_name(struct page *p, const struct drawing *d, size_t tile, double x)
{
    enum { NAMES_MOST = 30 };
    const size_t every = 1 + (d->n_tiles - 1) / NAMES_MOST;
    if (tile % every == 0) {
        const double y = HEIGHT - TILE_NAMES + 8;
        page_print(p,
                   "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" transform=\"rotate(-90 %.1f "
                   "%.1f)\">%s</text>",
                   x + 4, y, x + 4, y, d->tiles[tile]);
    }
}

void svg_print_landscape(struct page *p, const struct drawing *d)
{
    const struct scale s = scale_make(d, HEIGHT - TILE_NAMES);
    const double step = (double)(WIDTH - LEFT - RIGHT) / (double)(d->n_tiles ? d->n_tiles : 1);
    svg_begin(p, "Time against tile (rows x columns of a block)", HEIGHT);
    scale_print(p, &s);
    for (size_t i = 0; i < d->n_tiles; i++) {
        svg_print_tile_name(p, d, i, LEFT + step * ((double)i + 0.5));
    }
    for (size_t i = 0; i < d->n; i++) {
        const struct dot *dot = &d->dots[i];
        /* Spreads the dots of a tile, so that equal times do not hide each other. */
        const double spread = step * 0.7 * ((double)(i * 7 % 11) / 10 - 0.5);
        const double x = LEFT + step * (dot->tile + 0.5) + spread;
        if (dot->tile >= 0 && dot->us > 0) {
            svg_print_dot(p, dot, x, scale_at(&s, dot->us), true);
        } else if (dot->tile >= 0) {
            svg_print_cross(p, x, dot->config, dot->failure);
        }
    }
    svg_end(p, &s, d);
}

/* ---- the search's path ----------------------------------------------------------------------- */

/* The fastest time so far, as a line of steps. */
static void svg_print_best(struct page *p, const struct drawing *d, const struct scale *s,
                           double step)
{
    double best = 0;
    page_print(p, "<path class=\"best\" d=\"");
    for (size_t i = 0; i < d->n; i++) {
        const struct dot *dot = &d->dots[i];
        if (dot->is_ok && dot->us > 0 && (best <= 0 || dot->us < best)) {
            const double x = LEFT + step * ((double)i + 0.5);
            page_print(p, "%s%.1f", best > 0 ? "H" : "M", x);
            page_print(p, "%s%.1f", best > 0 ? "V" : " ", scale_at(s, dot->us));
            best = dot->us;
        }
    }
    page_print(p, best > 0 ? "H%d\"/>" : "\"/>", WIDTH - RIGHT);
}

void svg_print_path(struct page *p, const struct drawing *d)
{
    const struct scale s = scale_make(d, HEIGHT - BOTTOM);
    const double step = (double)(WIDTH - LEFT - RIGHT) / (double)(d->n ? d->n : 1);
    svg_begin(p, "The search's path: trials in their order", HEIGHT);
    scale_print(p, &s);
    for (size_t i = 0; i < d->n; i++) {
        const struct dot *dot = &d->dots[i];
        const double x = LEFT + step * ((double)i + 0.5);
        if (dot->begins_run) {
            page_print(p, "<line class=\"run\" x1=\"%.1f\" y1=\"%d\" x2=\"%.1f\" y2=\"%d\"/>",
                       x - step / 2, TOP, x - step / 2, HEIGHT - BOTTOM);
        }
        if (dot->us > 0) {
            svg_print_dot(p, dot, x, scale_at(&s, dot->us), false);
        } else {
            svg_print_cross(p, x, dot->config, dot->failure);
        }
    }
    svg_print_best(p, d, &s, step);
    page_print(p,
               "<text x=\"%d\" y=\"%d\">1</text><text x=\"%d\" y=\"%d\" "
               "text-anchor=\"end\">%zu</text>",
               LEFT, HEIGHT - 8, WIDTH - RIGHT, HEIGHT - 8, d->n);
    svg_end(p, &s, d);
}
