/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The HTML of a report. The file is also well-formed XML. Its policy (Content-Security-Policy)
 * forbids scripts and the network, in case an escape is ever missing.
 */
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "client/ctl/report.h"

/* ---- text ------------------------------------------------------------------------------------ */

static void page_escape(FILE *out, const char *text)
{
    TEXT_AUTO *visible = text_visible(text_copy(text ? text : ""));
    for (const char *at = visible; at && *at; at++) {
        switch (*at) {
        case '<':
            fputs("&lt;", out);
            break;
        case '>':
            fputs("&gt;", out);
            break;
        case '&':
            fputs("&amp;", out);
            break;
        case '"':
            fputs("&quot;", out);
            break;
        case '\'':
            fputs("&#39;", out);
            break;
        default:
            putc(*at, out);
        }
    }
}

/* Prints the value of the conversion at `percent`; returns the format behind the conversion. */
static const char *page_print_value(FILE *out, const char *percent, va_list *args)
{
    const size_t flags = strspn(percent + 1, "0123456789.*lz");
    const char conversion = percent[1 + flags];
    char spec[16];
    snprintf(spec, sizeof(spec), "%.*s", (int)flags + 2, percent);
    _Pragma("GCC diagnostic push");
    _Pragma("GCC diagnostic ignored \"-Wformat-nonliteral\"");
    if (conversion == 's') {
        page_escape(out, va_arg(*args, const char *));
    } else if (conversion == 'f' && strchr(spec, '*')) {
        const int decimals = va_arg(*args, int);
        fprintf(out, spec, decimals, va_arg(*args, double));
    } else if (conversion == 'f') {
        fprintf(out, spec, va_arg(*args, double));
    } else if (conversion == 'd' && strchr(spec, 'l')) {
        fprintf(out, spec, va_arg(*args, long long));
    } else if (conversion == 'd') {
        fprintf(out, spec, va_arg(*args, int));
    } else if (conversion == 'u') {
        fprintf(out, spec, va_arg(*args, size_t));
    } else {
        putc('%', out);
    }
    _Pragma("GCC diagnostic pop");
    return percent + flags + 2;
}

void page_print(struct page *p, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    for (const char *at = format; *at;) {
        const size_t n = strcspn(at, "%");
        fwrite(at, 1, n, p->out);
        at = at[n] ? page_print_value(p->out, at + n, &args) : at + n;
    }
    va_end(args);
}

/* ---- the document ---------------------------------------------------------------------------- */

static const char style[] =
    ":root{color-scheme:light dark;--back:#fff;--text:#1b1f24;--dim:#59626d;--line:#d5dbe1;"
    "--card:#f5f7f9;--blue:#0b62c4;--green:#1a7f37;--red:#c62828;--track:#e1e6ec}"
    "@media(prefers-color-scheme:dark){:root{--back:#10151a;--text:#dfe5ec;--dim:#9aa5b1;"
    "--line:#303943;--card:#182028;--blue:#6cb2ff;--green:#5fcf83;--red:#ff8078;--track:#2b343e}}"
    "*{box-sizing:border-box}"
    "body{margin:0 auto;padding:16px;max-width:1240px;background:var(--back);color:var(--text);"
    "font:15px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}"
    "h1{font-size:24px;margin:8px 0}h2{font-size:19px;margin:36px 0 "
    "8px}h3{font-size:16px;margin:20px "
    "0 4px}p{margin:6px 0;max-width:80ch}a{color:var(--blue)}.dim{color:var(--dim)}"
    "nav a{display:inline-block;margin-right:14px}"
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:10px;margin:"
    "14px 0}.tiles div{background:var(--card);border:1px solid "
    "var(--line);border-radius:8px;padding:"
    "8px 12px}.tiles b{display:block;font-size:22px}"
    ".scroll{overflow-x:auto;border:1px solid var(--line);border-radius:8px;margin:8px 0}"
    "table{border-collapse:collapse;width:100%;font-size:13px;font-variant-numeric:tabular-nums}"
    "th,td{padding:4px 8px;text-align:left;white-space:nowrap;border-bottom:1px solid var(--line)}"
    "th{background:var(--card);font-weight:600}tr:last-child "
    "td{border-bottom:0}.r{text-align:right}"
    "p.config{max-width:none;font-size:12px}td.long{white-space:normal;min-width:280px}"
    ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,320px),1fr));gap:"
    "16px}"
    "figure{margin:8px 0}figcaption{font-weight:600;font-size:13px}"
    "svg.plot{display:block;width:100%;max-width:580px;height:auto}"
    "svg.bar{width:72px;height:10px;vertical-align:middle;margin-right:8px}"
    "svg text{font:11px system-ui,sans-serif;fill:var(--dim)}.plot "
    "text{paint-order:stroke;stroke:var(--back);stroke-width:3px}.track{fill:var(--track)}"
    ".fill{fill:var(--blue)}.axis{stroke:var(--line)}.ok{fill:var(--blue);fill-opacity:.45}"
    ".cut{fill:none;stroke:var(--dim);stroke-opacity:.6}.final{fill:var(--green);fill-opacity:.8}"
    ".bad{stroke:var(--red);stroke-opacity:.7}.winner{fill:none;stroke:var(--green);stroke-width:2."
    "5}"
    ".best{fill:none;stroke:var(--green);stroke-width:1.5}.ref{stroke:var(--red);stroke-dasharray:"
    "5 "
    "3}.floor{stroke:var(--dim);stroke-dasharray:2 3}.run{stroke:var(--line);stroke-dasharray:1 2}"
    "svg text.refname{fill:var(--red)}";

int page_open(struct page *p, const char *title)
{
    *p = (struct page){.out = NULL};
    p->out = open_memstream(&p->text, &p->length);
    if (!p->out) {
        return ctl_failed("no memory for the report");
    }
    page_print(p,
               "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>\n"
               "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"/>\n"
               "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src &#39;none&#39;; "
               "style-src &#39;unsafe-inline&#39;\"/>\n");
    page_print(p, "<title>%s</title>\n<style>", title);
    fputs(style, p->out); /* not escaped, unlike by page_print: the text is a constant */
    page_print(p, "</style></head>\n<body>\n<h1>%s</h1>\n", title);
    return DONE;
}

char *page_close(struct page *p)
{
    page_print(p, "</body></html>\n");
    const bool failed = ferror(p->out);
    if (fclose(p->out) || failed) {
        free(p->text);
        p->text = NULL;
    }
    p->out = NULL;
    return p->text;
}

void page_print_counts(struct page *p, const char *before, const json_t *counts)
{
    OBJECT_EACH(name, n, counts) {
        page_print(p, "%s%lld %s", before, json_integer_value(n), name);
        before = ", ";
    }
}

void page_begin_section(struct page *p, const char *id, const char *title)
{
    page_print(p, "<section id=\"%s\">\n<h2>%s</h2>\n", id, title);
}

void page_end_section(struct page *p)
{
    page_print(p, "</section>\n");
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Sentences wrap; everything else stays on a line, in a table that scrolls. */
static const char *page_class(const struct column *column)
{
    return list_has("text,reason,doubt,ending,difference", column->key) ? "long"
           : column->right                                              ? "r"
                                                                        : "l";
}

static void page_print_cell(struct page *p, const struct column *column, const json_t *row)
{
    const json_t *v = field_value(row, column->key);
    TEXT_AUTO *text = table_show_value(column, row);
    page_print(p, "<td class=\"%s\">", page_class(column));
    if (strcmp(column->key, "floor_percent") == 0 && json_is_number(v)) {
        svg_print_bar(p, json_number_value(v));
    }
    page_print(p, "%s</td>", text);
}

void page_print_table(struct page *p, const struct column *columns, size_t n, const json_t *rows)
{
    bool shown[32];
    if (json_array_size(rows) == 0) {
        return;
    }
    page_print(p, "<div class=\"scroll\"><table><thead><tr>");
    for (size_t c = 0; c < n; c++) {
        shown[c] = table_needs_column(&columns[c], rows);
        if (shown[c]) {
            page_print(p, "<th class=\"%s\">%s</th>", page_class(&columns[c]), columns[c].title);
        }
    }
    page_print(p, "</tr></thead>\n<tbody>\n");
    ARRAY_EACH(row, rows) {
        page_print(p, "<tr>");
        for (size_t c = 0; c < n; c++) {
            if (shown[c]) {
                page_print_cell(p, &columns[c], row);
            }
        }
        page_print(p, "</tr>\n");
    }
    page_print(p, "</tbody></table></div>\n");
}
