// Contents of this folder's files and of the plotting library, compiled in.
#pragma once

#include <string_view>

namespace isentrope::report::assets {

extern const std::string_view page_html, page_css, page_js, contents_js, line_chart_json,
    head_map_json, charts_json, overview_json, prose_html, vega_js;

}  // namespace isentrope::report::assets
