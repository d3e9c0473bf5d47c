// Does what the bundle's own entry module does: registers the transforms and joins the interfaces.
Object.assign(vegaModules['vega-dataflow'].transforms, vegaModules['vega-transforms'],
              vegaModules['vega-view-transforms'], vegaModules['vega-encode']);
const vega = Object.assign({}, ...Object.values(vegaModules));
