// Search, copy buttons, and the menu of wide screens. All of it works from a file system.
const field = document.getElementById('search'), results = document.getElementById('results')
const fold = text => text.toLowerCase().replaceAll('-', '_') // settings are spelled in two ways

function loadPages() {
  if (document.getElementById('pages')) return
  const script = document.createElement('script')
  script.id = 'pages'
  script.src = 'pages.js'
  script.onload = search
  document.head.append(script)
}

// score is 0 unless the section has all words. Titles weigh more than text.
function score(section, words) {
  let sum = 0
  for (const word of words) {
    const at = [section.head, section.page, section.text].map(text => fold(text).indexOf(word))
    if (at.every(i => i < 0)) return 0
    sum += (at[0] >= 0 ? 20 : 0) + (at[0] === 0 ? 10 : 0) + (at[1] >= 0 ? 8 : 0) + (at[2] >= 0 ? 3 : 0)
  }
  return /^(changelog|bench)\b/.test(section.url) ? sum / 4 : sum
}

// marked returns text as nodes, with the words marked.
function marked(text, words) {
  const lower = fold(text), nodes = []
  for (let i = 0; i < text.length;) {
    const next = words.map(w => [lower.indexOf(w, i), w.length]).filter(([at]) => at >= 0).sort(([a], [b]) => a - b)[0] ?? [text.length, 0]
    nodes.push(text.slice(i, next[0]))
    const mark = document.createElement('mark')
    mark.textContent = text.substr(...next)
    if (next[1]) nodes.push(mark)
    i = next[0] + next[1]
  }
  return nodes
}

function search() {
  const words = fold(field.value).split(/\s+/).filter(Boolean)
  results.hidden = !words.length || !window.pages
  if (results.hidden) return
  const found = window.pages.map(s => [score(s, words), s]).filter(([n]) => n).sort(([a], [b]) => b - a).slice(0, 12)
  results.replaceChildren(...found.map(([, s]) => {
    const item = document.createElement('li'), link = document.createElement('a'), excerpt = document.createElement('small')
    link.href = s.url
    link.append(...marked(s.head === s.page ? s.page : `${s.page}: ${s.head}`, words), excerpt)
    const first = Math.max(0, Math.min(...words.map(w => fold(s.text).indexOf(w)).filter(i => i >= 0), s.text.length) - 30)
    excerpt.append(...marked(s.text.slice(first, first + 160), words))
    item.append(link)
    return item
  }))
  if (!found.length) results.innerHTML = '<li>Nothing found</li>'
}

field.value = new URLSearchParams(location.search).get('q') ?? '' // a link to what a search finds
if (field.value) loadPages()
field.addEventListener('focus', loadPages)
field.addEventListener('input', search)
addEventListener('keydown', event => {
  const links = [...results.querySelectorAll('a')], at = links.indexOf(document.activeElement)
  if (event.key === '/' && !/INPUT|TEXTAREA/.test(document.activeElement.tagName)) field.focus()
  else if (event.key === 'Escape') results.hidden = true
  else if (event.key === 'Enter' && document.activeElement === field && links[0]) location.href = links[0].href
  else if (results.hidden || !/Arrow(Up|Down)/.test(event.key)) return
  else (links[at + (event.key === 'ArrowDown' ? 1 : -1)] ?? field).focus()
  event.preventDefault()
})
addEventListener('click', event => {
  if (!event.target.closest('.search') || event.target.closest('#results a')) results.hidden = true
})

for (const pre of document.querySelectorAll('pre')) {
  const block = document.createElement('div'), button = document.createElement('button')
  block.className = 'block'
  button.className = 'copy'
  button.textContent = 'Copy'
  button.onclick = () => navigator.clipboard.writeText(pre.innerText).then(() => { button.textContent = 'Copied' })
  pre.replaceWith(block)
  block.append(pre, button)
}
for (const table of document.querySelectorAll('main table')) { // wide tables scroll by themselves
  const box = document.createElement('div')
  box.className = 'table'
  box.tabIndex = 0
  table.replaceWith(box)
  box.append(table)
}
const wide = matchMedia('(min-width: 50.01rem)'), menu = document.querySelector('.menu')
const unfold = () => { menu.open = wide.matches }
wide.addEventListener('change', unfold)
unfold()
