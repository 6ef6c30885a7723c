# bash completion for beanpole(8) and beanpole-ctl(1)
_beanpole_tubes() {
    beanpole tubes --timeout 1 2>/dev/null </dev/null | sed -n '2,$s/\t.*//p'
}
_beanpole() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}
    COMPREPLY=()
    words() { COMPREPLY=($(compgen -W "$1" -- "$word")); }
    tubes() {
        local tube
        while IFS= read -r tube; do
            [[ $tube == "$word"* ]] && COMPREPLY+=("$(printf %q "$tube")")
        done < <(_beanpole_tubes)
    }
    files() { compopt -o filenames; COMPREPLY=($(compgen "$1" -- "$word")); }
    if [ "$COMP_CWORD" = 1 ] || [[ ${COMP_WORDS[1]} == -* ]]; then
        case $word in
        -*) words '@OPTIONS@' ;;
        *) [ "$COMP_CWORD" = 1 ] && words '@NAMES@' || files -f ;;
        esac
        return
    fi
    settings() { compopt -o nospace; words '@SETTINGS@'; }
    case $before in
    -t | --tube) tubes; return ;;
    -f | --file | --cacert | --cert | --key | --token-file) files -f; return ;;
    --state) words 'ready delayed buried reserved held scheduled'; return ;;
    esac
    case ${COMP_WORDS[1]} in
@SUBCOMMANDS@    esac
}
complete -F _beanpole beanpole
