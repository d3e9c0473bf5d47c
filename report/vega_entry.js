// What the bundle's own entry module does: register the transforms, join the interfaces.
Object.assign(vegaModules['vega-dataflow'].transforms, vegaModules['vega-transforms'],
              vegaModules['vega-view-transforms'], vegaModules['vega-encode']);
const vega = Object.assign({}, ...Object.values(vegaModules));
