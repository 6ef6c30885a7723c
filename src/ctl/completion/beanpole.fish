# fish completion for beanpole(8) and beanpole-ctl(1)
function __beanpole_tubes
    beanpole tubes --timeout 1 2>/dev/null </dev/null | sed -n '2,$s/\t.*//p'
end
complete -c beanpole -f
@OPTIONS@@SUBCOMMANDS@
