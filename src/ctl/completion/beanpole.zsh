#compdef beanpole
# zsh completion for beanpole(8) and beanpole-ctl(1)
_beanpole_tubes() {
  local -a tubes
  tubes=(${(f)"$(beanpole tubes --timeout 1 2>/dev/null </dev/null | sed -n '2,$s/\t.*//p')"})
  compadd -a tubes
}
_beanpole_settings() {
  compadd -S '' -- @SETTINGS@
}
_beanpole() {
  local -a subcommands
  subcommands=(
@NAMES@  )
  if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then
    _describe subcommand subcommands
    return
  fi
  local word=$words[2]
  case $word in
@SUBCOMMANDS@  *)
    _arguments@OPTIONS@ ;;
  esac
}
_beanpole "$@"
